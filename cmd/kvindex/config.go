package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/discovery"
	"github.com/kvindex/kvindex/events/natssource"
	"github.com/kvindex/kvindex/indexer"
)

// config is everything that `kvindex serve` can be told. The tags are the keys
// of the YAML file; KVINDEX_ and the upper-case path, with _ for each dot, is
// the environment variable.
type config struct {
	Listen    string           `koanf:"listen" yaml:"listen"`       // address of the HTTP API
	Log       logConfig        `koanf:"log" yaml:"log"`             // what is said on stderr
	Models    []modelConfig    `koanf:"models" yaml:"models"`       // optional: what requests may call them, block sizes
	Instances []instanceConfig `koanf:"instances" yaml:"instances"` // model servers to follow from the start
	Discovery discoveryConfig  `koanf:"discovery" yaml:"discovery"` // where more of them are found
	Index     indexConfig      `koanf:"index" yaml:"index"`
	Events    eventsConfig     `koanf:"events" yaml:"events"`
	NATS      natsConfig       `koanf:"nats" yaml:"nats"` // instances that come over NATS; none without a url
	Tokenizer tokenizerConfig  `koanf:"tokenizer" yaml:"tokenizer"`
	Snapshot  snapshotConfig   `koanf:"snapshot" yaml:"snapshot"` // what a restart goes on from; none without dir, redis or peers
	Kthena    kthenaConfig     `koanf:"kthena" yaml:"kthena"`     // approximate matches by what its sidecars write; none without redis
	API       apiConfig        `koanf:"api" yaml:"api"`
}

type logConfig struct {
	Level  string `koanf:"level" yaml:"level"`   // debug, info, warn, error
	Format string `koanf:"format" yaml:"format"` // text or json
}

type modelConfig struct {
	Name      string   `koanf:"name" yaml:"name"`
	Aliases   []string `koanf:"aliases" yaml:"aliases"`       // other names that requests use
	LoRAs     []string `koanf:"loras" yaml:"loras"`           // adapters, before an event names them
	BlockSize int      `koanf:"block_size" yaml:"block_size"` // of its instances; 0: learnt from events
	Tokenizer string   `koanf:"tokenizer" yaml:"tokenizer"`   // directory with its tokenizer.json, hub name (Org/Name@revision), auto (the model's name), engine (instances are asked; the default), none
}

type instanceConfig struct {
	ID             string   `koanf:"id" yaml:"id"`
	Model          string   `koanf:"model" yaml:"model"`
	URL            string   `koanf:"url" yaml:"url"`                         // lets the engine describe itself
	Endpoint       string   `koanf:"endpoint" yaml:"endpoint"`               // tcp://HOST:PORT of rank 0
	ReplayEndpoint string   `koanf:"replay_endpoint" yaml:"replay_endpoint"` // likewise
	DPRanks        int      `koanf:"dp_ranks" yaml:"dp_ranks"`               // ranks at consecutive ports; default 1
	Topic          string   `koanf:"topic" yaml:"topic"`                     // subscription prefix; default everything
	BlockSize      int      `koanf:"block_size" yaml:"block_size"`
	TenantID       string   `koanf:"tenant_id" yaml:"tenant_id"`
	LoRAName       string   `koanf:"lora_name" yaml:"lora_name"`
	Aliases        []string `koanf:"aliases" yaml:"aliases"`
}

type indexConfig struct {
	Seed         uint64 `koanf:"seed" yaml:"seed"`                   // of the block hashes; 1337 is the public convention
	Duplicates   string `koanf:"duplicates" yaml:"duplicates"`       // refcount or set: see the README
	ClearedTiers string `koanf:"cleared_tiers" yaml:"cleared_tiers"` // what "all blocks cleared" drops: all or gpu

	// Bounds on what is kept, of all models and of each; 0 is none.
	MaxBlocks      int   `koanf:"max_blocks" yaml:"max_blocks"`
	MaxModelBlocks int   `koanf:"max_model_blocks" yaml:"max_model_blocks"`
	MaxMemory      int64 `koanf:"max_memory" yaml:"max_memory"`             // bytes
	MaxModelMemory int64 `koanf:"max_model_memory" yaml:"max_model_memory"` // bytes
}

type eventsConfig struct {
	MaxPayload    int           `koanf:"max_payload" yaml:"max_payload"`       // bytes of one batch
	MaxPending    int           `koanf:"max_pending" yaml:"max_pending"`       // bytes a stream that wait for a replay
	MaxReplays    int           `koanf:"max_replays" yaml:"max_replays"`       // at once, over all streams
	SilenceHint   time.Duration `koanf:"silence_hint" yaml:"silence_hint"`     // when a silent engine is remarked upon
	SuspectTTL    time.Duration `koanf:"suspect_ttl" yaml:"suspect_ttl"`       // what may be stale answers for so long at most
	Grace         time.Duration `koanf:"grace" yaml:"grace"`                   // before a lost connection makes it so
	WarmupTimeout time.Duration `koanf:"warmup_timeout" yaml:"warmup_timeout"` // ready at the latest after this long
}

// snapshotConfig says where snapshots are written, and where a start looks for
// one: with peers first, then in Redis, then in the directory.
type snapshotConfig struct {
	Dir               string        `koanf:"dir" yaml:"dir"`
	Redis             string        `koanf:"redis" yaml:"redis"`                             // redis://, redis+sentinel://, redis+cluster://; rediss is TLS
	RedisPasswordFile string        `koanf:"redis_password_file" yaml:"redis_password_file"` // read for each connection
	RedisCAFile       string        `koanf:"redis_ca_file" yaml:"redis_ca_file"`
	Cluster           string        `koanf:"cluster" yaml:"cluster"` // name of the fleet: snapshots of others are not used
	Peers             []string      `koanf:"peers" yaml:"peers"`     // URLs of other replicas
	PeerTokenFile     string        `koanf:"peer_token_file" yaml:"peer_token_file"`
	Interval          time.Duration `koanf:"interval" yaml:"interval"`
}

// natsConfig is about the instances whose events a relay publishes to NATS.
type natsConfig struct {
	URL             string    `koanf:"url" yaml:"url"`                           // nats://HOST:4222, or several with commas
	Stream          string    `koanf:"stream" yaml:"stream"`                     // the JetStream stream of the relays
	Models          []string  `koanf:"models" yaml:"models"`                     // only the instances of these; empty: all
	MaxStreams      int       `koanf:"max_streams" yaml:"max_streams"`           // that are followed: whoever may publish names them
	CredentialsFile string    `koanf:"credentials_file" yaml:"credentials_file"` // of a NATS user
	TokenFile       string    `koanf:"token_file" yaml:"token_file"`
	TLS             tlsConfig `koanf:"tls" yaml:"tls"`
}

// tlsConfig names files in PEM.
type tlsConfig struct {
	CAFile   string `koanf:"ca_file" yaml:"ca_file"`     // roots; empty: the system's
	CertFile string `koanf:"cert_file" yaml:"cert_file"` // ours, and its key
	KeyFile  string `koanf:"key_file" yaml:"key_file"`
}

type tokenizerConfig struct {
	CacheBytes  int           `koanf:"cache_bytes" yaml:"cache_bytes"`   // for beginnings of prompts that were seen
	AskEngines  bool          `koanf:"ask_engines" yaml:"ask_engines"`   // instances with a url, where no tokenizer here is exact
	SampleEvery int           `koanf:"sample_every" yaml:"sample_every"` // every n-th request is compared with an instance; 0: none
	ProveEvery  time.Duration `koanf:"prove_every" yaml:"prove_every"`   // between two comparisons with one instance
	Hub         hubConfig     `koanf:"hub" yaml:"hub"`
}

// hubConfig is about models on a hub. What is empty is as the HF_ variables
// say: HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and their like.
type hubConfig struct {
	Endpoint       string `koanf:"endpoint" yaml:"endpoint"`
	TokenFile      string `koanf:"token_file" yaml:"token_file"`
	CacheDir       string `koanf:"cache_dir" yaml:"cache_dir"`               // holds models--Org--Name
	LocalFilesOnly bool   `koanf:"local_files_only" yaml:"local_files_only"` // nothing is downloaded
}

type apiConfig struct {
	TokenFile      string        `koanf:"token_file" yaml:"token_file"`             // bearer token that requests must carry
	AdminTokenFile string        `koanf:"admin_token_file" yaml:"admin_token_file"` // for clear, resync, dump and profiles
	MaxBody        int64         `koanf:"max_body" yaml:"max_body"`                 // bytes of a request
	MaxQueries     int           `koanf:"max_queries" yaml:"max_queries"`           // at once
	DrainTime      time.Duration `koanf:"drain_time" yaml:"drain_time"`             // after SIGTERM, for routers to notice
}

func defaultConfig() config {
	return config{
		Listen: "127.0.0.1:8400",
		Log:    logConfig{Level: "info", Format: "text"},
		Index:  indexConfig{Seed: indexer.DefaultSeed, Duplicates: "refcount", ClearedTiers: "all"},
		Events: eventsConfig{
			MaxPayload: 16 << 20, MaxPending: 64 << 20, MaxReplays: 8,
			SilenceHint: 30 * time.Second, WarmupTimeout: 30 * time.Second,
			SuspectTTL: events.DefaultSuspectTTL, Grace: events.DefaultGrace,
		},
		Snapshot:  snapshotConfig{Cluster: "default", Interval: time.Minute},
		NATS:      natsConfig{Stream: natssource.DefaultStream, MaxStreams: natssource.DefaultMaxStreams},
		Tokenizer: tokenizerConfig{CacheBytes: 64 << 20, AskEngines: true, SampleEvery: 1000, ProveEvery: 10 * time.Minute},
		Kthena:    kthenaConfig{MaxBlocks: 4096, Timeout: 100 * time.Millisecond},
		API:       apiConfig{MaxBody: 8 << 20, MaxQueries: 256, DrainTime: time.Second},
	}
}

// validate reports everything that is wrong, at once.
func (c *config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			bad("%s: %q is none of %s", key, value, strings.Join(allowed, ", "))
		}
	}
	positive := func(key string, value int64) {
		if value <= 0 {
			bad("%s: %d is not positive", key, value)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen: %q is not HOST:PORT", c.Listen)
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	oneOf("index.duplicates", c.Index.Duplicates, "refcount", "set")
	oneOf("index.cleared_tiers", c.Index.ClearedTiers, "all", "gpu")
	positive("events.max_payload", int64(c.Events.MaxPayload))
	positive("events.max_pending", int64(c.Events.MaxPending))
	positive("events.max_replays", int64(c.Events.MaxReplays))
	positive("events.silence_hint", int64(c.Events.SilenceHint))
	positive("tokenizer.cache_bytes", int64(c.Tokenizer.CacheBytes))
	positive("tokenizer.prove_every", int64(c.Tokenizer.ProveEvery))
	if c.Tokenizer.SampleEvery < 0 {
		bad("tokenizer.sample_every: %d is negative", c.Tokenizer.SampleEvery)
	}
	positive("api.max_body", c.API.MaxBody)
	positive("api.max_queries", int64(c.API.MaxQueries))
	if c.NATS.URL != "" {
		if err := c.NATS.connect().Validate(); err != nil {
			bad("nats: %w", err)
		}
	}
	positive("events.suspect_ttl", int64(c.Events.SuspectTTL))
	positive("events.grace", int64(c.Events.Grace))
	positive("nats.max_streams", int64(c.NATS.MaxStreams))
	if err := c.Snapshot.validate(); err != nil {
		bad("snapshot.%w", err)
	}
	if err := c.validateDNS(); err != nil {
		bad("%w", err)
	}
	if err := c.Kthena.validate(); err != nil {
		bad("kthena.%w", err)
	}
	if c.Events.WarmupTimeout < 0 {
		bad("events.warmup_timeout: %v is negative", c.Events.WarmupTimeout)
	}
	if c.API.DrainTime < 0 {
		bad("api.drain_time: %v is negative", c.API.DrainTime)
	}
	names := map[string]string{}
	for i, m := range c.Models {
		key := fmt.Sprintf("models[%d]", i)
		if m.Name == "" {
			bad("%s.name is missing", key)
		}
		if m.BlockSize < 0 {
			bad("%s.block_size: %d is negative", key, m.BlockSize)
		}
		if err := m.validateTokenizer(); err != nil {
			bad("%s.tokenizer: %w", key, err)
		}
		for _, n := range append([]string{m.Name}, m.Aliases...) {
			if other, taken := names[n]; taken && n != "" {
				bad("%s: the name %q is taken by %s", key, n, other)
			}
			names[n] = key
		}
	}
	ids := map[string]int{}
	for i, in := range c.Instances {
		key := fmt.Sprintf("instances[%d]", i)
		if in.ID != "" {
			if other, taken := ids[in.ID]; taken {
				bad("%s.id: %q is taken by instances[%d]", key, in.ID, other)
			}
			ids[in.ID] = i
		}
		if in.DPRanks < 0 || in.DPRanks > 4096 {
			bad("%s.dp_ranks: %d is not in 1..4096", key, in.DPRanks)
			continue
		}
		spec, err := c.spec(in)
		if err != nil {
			bad("%s: %w", key, err)
			continue
		}
		if len(spec.Streams) == 0 && spec.URL == "" {
			bad("%s (%s): neither endpoint nor url is given", key, in.ID)
			continue
		}
		if len(spec.Streams) > 0 { // else the engine tells the rest
			if spec.Model == "" && spec.URL == "" {
				bad("%s (%s): model is missing", key, in.ID)
			} else if spec.Model != "" && spec.ID != "" {
				if err := spec.Validate(); err != nil {
					bad("%s: %w", key, err)
				}
			}
		}
		if in.ID == "" && in.URL == "" {
			bad("%s.id is missing", key)
		}
	}
	return errors.Join(errs...)
}

// spec turns a configured instance into what is to be followed. Without an
// endpoint the streams are left for the engine to describe.
func (c *config) spec(in instanceConfig) (events.InstanceSpec, error) {
	spec := events.InstanceSpec{
		ID: in.ID, Model: in.Model, Tenant: in.TenantID, LoRA: in.LoRAName,
		BlockSize: in.BlockSize, URL: in.URL, Aliases: in.Aliases, Source: "static",
	}
	for _, m := range c.Models {
		if m.Name == in.Model && spec.BlockSize == 0 {
			spec.BlockSize = m.BlockSize
		}
	}
	if in.Endpoint == "" {
		return spec, nil
	}
	var err error
	spec.Streams, err = discovery.Ranks(in.Endpoint, in.ReplayEndpoint, max(in.DPRanks, 1))
	for i := range spec.Streams {
		spec.Streams[i].Topic = in.Topic
	}
	return spec, err
}

// loopback reports whether only this machine can reach the address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
