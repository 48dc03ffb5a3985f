package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/kvindex/kvindex/api"
	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/discovery"
	"github.com/kvindex/kvindex/events/zmqsource"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/tokenizer"
)

func newServeCommand() *cobra.Command {
	var configPath string
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Follow instances and answer routers",
		Long: `Follow the configured instances, and those that register over HTTP, and answer
queries until SIGTERM.

Every key of the configuration file is also an environment variable: KVINDEX_
and the key in upper case with _ for each dot (KVINDEX_LOG_LEVEL=debug); lists
are YAML (KVINDEX_INSTANCES='[{id: pod-0, ...}]'). Flags win over variables,
variables over the file. --print-config shows what comes out, and every key.`,
		Example: `  kvindex serve                                      start empty; instances register over HTTP
  kvindex serve --config kvindex.yaml --listen :8400
  kvindex serve --config kvindex.yaml --print-config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := map[string]any{}
			for name, key := range map[string]string{"listen": "listen", "log-level": "log.level", "log-format": "log.format"} {
				if f := cmd.Flags().Lookup(name); f.Changed {
					flags[key] = f.Value.String()
				}
			}
			c, err := loadConfig(configPath, os.Environ(), flags)
			if err != nil {
				return fmt.Errorf("the configuration has errors:\n%w", err)
			}
			if printConfig {
				return writeConfig(cmd.OutOrStdout(), c)
			}
			return serve(cmd.Context(), c, newLogger(cmd.ErrOrStderr(), c.Log))
		},
	}
	cmd.Flags().StringVar(&configPath, "config", "", "YAML configuration `file`")
	cmd.Flags().String("listen", "", "`address` of the HTTP API (default 127.0.0.1:8400)")
	cmd.Flags().String("log-level", "", "debug, info, warn or error (default info)")
	cmd.Flags().String("log-format", "", "text or json (default text)")
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print the resulting configuration and exit")
	return cmd
}

func writeConfig(w io.Writer, c config) error {
	enc := yamlv3.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("cannot print the configuration: %w", err)
	}
	return enc.Close()
}

func newLogger(w io.Writer, c logConfig) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// service is a running kvindex: what serve and demo have in common.
type service struct {
	config     config
	log        *slog.Logger
	index      *indexer.Index
	source     *zmqsource.Source
	nats       natsReader
	fleet      *events.Fleet
	static     *discovery.Static
	dns        *discovery.DNS
	engines    *engines
	tokenizers *tokenizer.Registry
	prover     prover
	reloader   reloader
	snapshots  *snapshots
	kthena     *kthenaBlocks
	api        *api.Server
	http       *http.Server
	lis        net.Listener
	startup    *startup
	started    time.Time
	warm       atomic.Bool        // has been ready
	stop       context.CancelFunc // ends what static began
}

// newService builds everything in the order of dependence and listens.
func newService(ctx context.Context, c config, log *slog.Logger) (s *service, err error) {
	s = &service{config: c, log: log, started: time.Now()}
	if s.lis, err = listen(ctx, c.Listen); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.lis.Close()
		}
	}()
	policy := indexer.Refcount
	if c.Index.Duplicates == "set" {
		policy = indexer.Set
	}
	if s.index, err = indexer.New(indexer.Options{
		Seed: c.Index.Seed, DuplicatePolicy: policy,
		MaxBlocks: c.Index.MaxBlocks, MaxModelBlocks: c.Index.MaxModelBlocks,
		MaxBytes: c.Index.MaxMemory, MaxModelBytes: c.Index.MaxModelMemory,
	}); err != nil {
		return nil, err
	}
	for _, m := range c.Models {
		s.index.Alias(m.Name, m.Name) // so that it is known before an instance of it is
		for _, a := range m.Aliases {
			s.index.Alias(a, m.Name)
		}
		for _, l := range m.LoRAs {
			s.index.NoteLoRA(m.Name, l)
		}
	}
	if s.source, err = zmqsource.New(zmqsource.Options{
		MaxReplays: c.Events.MaxReplays, MaxFrame: int64(c.Events.MaxPayload), SilenceHint: c.Events.SilenceHint,
	}); err != nil {
		return nil, err
	}
	if s.nats, err = newNATSReader(&c, log); err != nil {
		return nil, err
	}
	s.fleet = events.NewFleet(events.FleetOptions{
		Index: s.index, Source: s.nats.or(s.source.Follow), Logger: log,
		Limits: events.Limits{MaxPayload: c.Events.MaxPayload}, MaxPending: c.Events.MaxPending,
		GPUClearOnly: c.Index.ClearedTiers == "gpu", SuspectTTL: c.Events.SuspectTTL, Grace: c.Events.Grace,
	})
	if s.snapshots, err = newSnapshots(c, s.fleet, s.index, s.nats, log); err != nil {
		return nil, err
	}
	s.startup = newStartup(s.snapshots.progress.String)
	adapter := newFleetAdapter(s.fleet, &s.config, s.startup)
	s.static = &discovery.Static{Fleet: s.fleet, Client: adapter.client, Logger: log}
	s.dns = &discovery.DNS{Fleet: s.fleet, Client: adapter.client, Logger: log}
	if s.engines, err = newEngines(s.fleet, log); err != nil {
		return nil, err
	}
	if s.tokenizers, err = newTokenizers(ctx, &s.config, s.engines, log); err != nil {
		return nil, err
	}
	s.prover = prover{engines: s.engines, registry: s.tokenizers, every: c.Tokenizer.ProveEvery}
	s.reloader = reloader{registry: s.tokenizers}
	if s.kthena, err = newKthena(&s.config); err != nil {
		return nil, err
	}
	if s.api, err = api.New(api.Options{
		Flat: s.kthena.source(), FlatFallback: c.Kthena.Fallback,
		Index: s.index, Fleet: adapter, Tokenizers: s.tokenizers, Logger: log, Version: version,
		Limits:    api.Limits{BodyBytes: c.API.MaxBody, ConcurrentQueries: c.API.MaxQueries},
		TokenFile: c.API.TokenFile, AdminTokenFile: c.API.AdminTokenFile,
		Ready: s.ready, Starting: s.startup.note, Collectors: slices.Concat(s.nats.collectors(), s.snapshots.collectors(), dnsCollectors(s.dns, &s.config)),
		Snapshot: s.snapshots.offer(s.startup, log),
	}); err != nil {
		return nil, err
	}
	s.http = s.api.HTTPServer(c.Listen)
	return s, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot listen on %s: the port is in use, perhaps by another kvindex; choose one with --listen HOST:PORT", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return lis, nil
}

// url is where the service answers.
func (s *service) url() string { return "http://" + s.lis.Addr().String() }

// start begins to answer, goes on from a snapshot if there is one, and follows
// the configured instances. What ends the HTTP server arrives on the channel.
func (s *service) start(ctx context.Context) (<-chan error, error) {
	var specs []events.InstanceSpec
	for _, in := range s.config.Instances {
		spec, err := s.config.spec(in)
		if err != nil {
			return nil, err // validated: not reached
		}
		specs = append(specs, spec)
	}
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s.lis) }()
	s.log.Info("kvindex answers", "url", s.url(), "instances", len(specs), "version", version)
	ctx, s.stop = context.WithCancel(ctx)
	restored, goOn := s.snapshots.restore(ctx)
	if !goOn {
		return done, nil // nothing is begun that would end at once
	}
	if err := s.static.Start(ctx, specs); err != nil {
		return nil, err
	}
	s.dns.Start(ctx, s.config.names())
	s.nats.start(ctx, s.fleet, restored)
	s.snapshots.start(ctx)
	s.prover.start(ctx)
	s.reloader.start(ctx)
	s.startup.end()
	return done, nil
}

// ready tells /readyz whether the configured instances have been caught up
// with, or enough time has passed. Who has been ready stays so until it ends: a
// stream that begins or replays later is marked in the answers, and all replicas
// meet it at once.
func (s *service) ready() (bool, []string) {
	late := time.Since(s.started) > s.config.Events.WarmupTimeout
	if note := s.startup.note(); note != "" {
		return late, append(loadingTokenizers(s.tokenizers), note)
	}
	awaited := append(s.static.Waiting(), loadingTokenizers(s.tokenizers)...)
	awaited = append(awaited, s.dns.Waiting()...)
	awaited = append(awaited, s.nats.waiting()...)
	for _, in := range s.fleet.Instances() {
		if spec := in.Spec(); awaitedAtStart(spec.Source) {
			if h := in.Health(); h.State == events.Connecting || h.State == events.Replaying {
				awaited = append(awaited, spec.ID+": "+h.State.String())
			}
		}
	}
	slices.Sort(awaited)
	if len(awaited) == 0 || late {
		s.warm.Store(true)
	}
	return s.warm.Load(), awaited
}

// close stops everything in the reverse order and says how long it took.
func (s *service) close() {
	begin := time.Now()
	step := func(what string, do func()) {
		t := time.Now()
		do()
		s.log.Info("stopped", "what", what, "took", time.Since(t).Round(time.Microsecond))
	}
	s.api.Drain()
	if s.config.API.DrainTime > 0 {
		step("drain", func() { time.Sleep(s.config.API.DrainTime) })
	}
	step("http", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			s.log.Warn("requests were cut off", "error", err)
		}
	})
	if s.stop != nil {
		s.stop()
		s.static.Wait()
		s.dns.Wait()
		s.nats.wait()
		s.prover.wait()
		s.reloader.wait()
		step("snapshot", s.snapshots.wait) // before the streams end: they are what it holds
	}
	s.snapshots.close()
	s.kthena.close()
	step("streams", s.fleet.Close)
	step("sockets", func() {
		if err := s.source.Close(); err != nil {
			s.log.Warn("cannot close the ZMQ context", "error", err)
		}
		s.nats.close()
	})
	step("tokenizers", s.tokenizers.Close)
	step("engines", s.engines.client.Close)
	step("index", s.index.Close)
	s.log.Info("bye", "took", time.Since(begin).Round(time.Millisecond))
}

// serve is `kvindex serve`.
func serve(ctx context.Context, c config, log *slog.Logger) error {
	s, err := newService(ctx, c, log)
	if err != nil {
		return err
	}
	done, err := s.start(ctx)
	if err != nil {
		s.close()
		return err
	}
	if !loopback(s.lis.Addr().String()) && c.API.TokenFile == "" {
		log.Warn("the API is reachable from other machines and asks for no token: set api.token_file, or listen on 127.0.0.1")
	}
	select {
	case <-ctx.Done():
		log.Info("stopping", "why", "signal")
		s.close()
		return nil
	case err := <-done:
		s.close()
		return fmt.Errorf("the HTTP server ended: %w", err)
	}
}
