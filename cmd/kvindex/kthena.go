package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/api"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/kthena"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
)

// kthenaConfig is about the block keys that kthena's sidecars write to Redis,
// which are only read.
type kthenaConfig struct {
	Redis             string        `koanf:"redis" yaml:"redis"` // redis://, redis+sentinel://, redis+cluster://; rediss is TLS
	RedisPasswordFile string        `koanf:"redis_password_file" yaml:"redis_password_file"`
	RedisCAFile       string        `koanf:"redis_ca_file" yaml:"redis_ca_file"`
	Models            []kthenaModel `koanf:"models" yaml:"models"`
	Fallback          bool          `koanf:"fallback" yaml:"fallback"`     // for queries about a model of which no stream is live
	MaxBlocks         int           `koanf:"max_blocks" yaml:"max_blocks"` // of a prompt that are looked at
	MaxAge            time.Duration `koanf:"max_age" yaml:"max_age"`       // older reports do not count; 0: all do
	Timeout           time.Duration `koanf:"timeout" yaml:"timeout"`       // of one query
}

// kthenaModel is a model whose blocks the sidecars write.
type kthenaModel struct {
	Name      string `koanf:"name" yaml:"name"`             // as in models
	Key       string `koanf:"key" yaml:"key"`               // what the sidecars call it; default name
	BlockSize int    `koanf:"block_size" yaml:"block_size"` // of the sidecars, which need not be the engines'; default 128
}

// kthenaBlockSize is kthena's default.
const kthenaBlockSize = 128

// validate says what is wrong, key first.
func (c *kthenaConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Redis == "" {
		if c.Fallback || len(c.Models) > 0 {
			bad("redis is missing: that is where the keys are")
		}
		return errors.Join(errs...)
	}
	if _, err := redisstore.ParseURL(c.Redis); err != nil {
		bad("redis: %w", err)
	}
	if len(c.Models) == 0 {
		bad("models is empty: name those whose keys are to be read")
	}
	for i, m := range c.Models {
		if m.Name == "" {
			bad("models[%d].name is missing", i)
		}
		if m.BlockSize < 0 {
			bad("models[%d].block_size: %d is negative", i, m.BlockSize)
		}
	}
	if c.MaxBlocks < 1 {
		bad("max_blocks: %d is not positive", c.MaxBlocks)
	}
	if c.MaxAge < 0 {
		bad("max_age: %v is negative", c.MaxAge)
	}
	if c.Timeout < time.Millisecond || c.Timeout > 5*time.Second {
		bad("timeout: %v is not in 1ms..5s", c.Timeout)
	}
	return errors.Join(errs...)
}

// kthenaBlocks answers by kthena's keys. It implements api.Flat; nil is for a
// configuration without them.
type kthenaBlocks struct {
	client    redis.UniversalClient
	bounded   *kthena.Bounded
	models    map[string]kthenaModel
	maxBlocks int
}

func newKthena(c *config) (*kthenaBlocks, error) {
	k := c.Kthena
	if k.Redis == "" {
		return nil, nil // nil is usable
	}
	conn, err := redisstore.ParseURL(k.Redis)
	if err != nil {
		return nil, err
	}
	conn.PasswordFile, conn.CAFile = k.RedisPasswordFile, k.RedisCAFile
	conn.PoolSize, conn.DialTimeout = 16, k.Timeout
	redis.SetLogger(quiet{}) // what it would say comes back as errors
	b := &kthenaBlocks{models: map[string]kthenaModel{}, maxBlocks: k.MaxBlocks}
	for _, m := range k.Models {
		if m.Key == "" {
			m.Key = m.Name
		}
		if m.BlockSize == 0 {
			m.BlockSize = kthenaBlockSize
		}
		b.models[m.Name] = m
	}
	if b.client, err = redisstore.Connect(conn); err != nil {
		return nil, err
	}
	r, err := kthena.NewReader(kthena.Options{Client: b.client, MaxBlocks: k.MaxBlocks, MaxAge: k.MaxAge})
	if err != nil {
		return nil, errors.Join(err, b.client.Close())
	}
	b.bounded = kthena.NewBounded(r, kthena.Bounds{Timeout: k.Timeout})
	return b, nil
}

// source is b, or no api.Flat at all.
func (b *kthenaBlocks) source() api.Flat {
	if b == nil {
		return nil
	}
	return b
}

func (b *kthenaBlocks) close() {
	if b != nil {
		_ = b.client.Close() // nothing was written
	}
}

// BlockSize implements api.Flat.
func (b *kthenaBlocks) BlockSize(model string) (int, bool) {
	m, ok := b.models[model]
	return m.BlockSize, ok
}

// Match implements api.Flat.
func (b *kthenaBlocks) Match(ctx context.Context, model string, tokens []uint32, maxBlocks int) (api.FlatMatch, error) {
	m := b.models[model]
	most := b.maxBlocks
	if maxBlocks > 0 {
		most = min(most, maxBlocks)
	}
	n := min(len(tokens)/m.BlockSize, most)
	found, err := b.bounded.Match(ctx, m.Key, kthena.FlatHashes(tokens[:n*m.BlockSize], m.BlockSize))
	if err != nil {
		return api.FlatMatch{}, err
	}
	out := api.FlatMatch{Scanned: n, Pods: make(map[string][indexer.NumTiers]int, len(found.Pods))}
	for field, p := range found.Pods {
		name, namespace := kthena.ParsePod(field)
		name = strings.TrimSuffix(name+"."+namespace, ".")
		have := out.Pods[name]
		for t := range have {
			have[t] = max(have[t], p.Near[t])
		}
		out.Pods[name] = have
	}
	return out, nil
}
