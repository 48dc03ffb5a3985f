package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kvindex/kvindex/scripts/loadgen/load"
)

// The fleets, which are models too.
const (
	tokensModel = "tokens"
	chatModel   = "chat"
)

// prompts are sent in turn, so that a row is not about one that all caches
// know by heart.
var prompts = []struct{ blocks, count int }{{632, 16}, {6250, 8}}

const (
	closedConnections = 8
	openConnections   = 32
	openShare         = 0.25 // of what the closed loop has found, is the open loop's rate
	chatTokens        = 100_000
	chatTurn          = 250 // tokens of the last message, which nobody has seen
)

// workload is what a row sends.
type workload struct {
	name   string
	tokens int // of a prompt, about
	source load.Source
}

// row is what was measured of a workload.
type row struct {
	Name   string `json:"name"`
	Tokens int    `json:"tokens"`
	Ingest bool   `json:"ingest"`

	PerSecond float64 `json:"queries_per_second"` // closed loop
	CPU       float64 `json:"server_cpu_us"`      // a query, closed loop; 0 where it is not known
	Closed    timing  `json:"closed"`
	Rate      float64 `json:"open_rate"`
	Open      timing  `json:"open"`
	Ingested  float64 `json:"ingested_blocks_per_second"` // during both loops
	Bad       uint64  `json:"bad"`                        // failed, never sent or not exact
}

// timing is percentiles in milliseconds.
type timing struct {
	ClientP50 float64 `json:"client_p50_ms"`
	ClientP99 float64 `json:"client_p99_ms"`
	ServerP50 float64 `json:"server_p50_ms"`
	ServerP99 float64 `json:"server_p99_ms"`
}

func timingOf(r *load.Result) timing {
	return timing{r.Client.P50, r.Client.P99, r.Server.P50, r.Server.P99}
}

// bench is one run.
type bench struct {
	o      options
	p      *progress
	server *server
	tokens *fleet
	ingest *ingest
	idle   float64 // processor seconds a second that ingest alone takes kvindex
	report *report
}

// measure does all that a run does.
func measure(ctx context.Context, o options, p *progress) (*report, error) {
	dir, err := os.MkdirTemp("", "bench-http-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.binary == "" {
		p.say("building kvindex")
		if o.binary, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	b := &bench{o: o, p: p, report: &report{CPUs: runtime.NumCPU()}}
	b.tokens, err = startFleet(tokensModel)
	if err != nil {
		return nil, err
	}
	defer b.tokens.close()
	chats, err := startFleet(chatModel)
	if err != nil {
		return nil, err
	}
	defer chats.close()
	tokenizer := tokenizerDir()
	config := "models:\n  - {name: " + tokensModel + "}\n"
	if tokenizer != "" {
		config += fmt.Sprintf("  - {name: %s, tokenizer: %q}\n", chatModel, tokenizer)
	}
	config += "instances:\n" + b.tokens.config() + chats.config()
	if b.server, err = startServer(ctx, o.binary, dir, config); err != nil {
		return nil, err
	}
	defer b.server.stop()
	var work []workload
	if work, err = b.fill(ctx, chats, tokenizer != ""); err != nil {
		return nil, err
	}
	if err := b.rows(ctx, work); err != nil {
		return nil, err
	}
	b.report.Seconds = time.Since(p.begin).Seconds()
	b.report.judge()
	return b.report, nil
}

// tokenizerDir is where the test tokenizers are kept (scripts/test-tokenizers.sh),
// "" if they are not there.
func tokenizerDir() string {
	cache := os.Getenv("KVINDEX_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(base, "kvindex")
	}
	dir := filepath.Join(cache, "test-tokenizers", "qwen3")
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
		return ""
	}
	return dir
}

// fill makes the pods hold the prompts and returns what is to be sent.
func (b *bench) fill(ctx context.Context, chats *fleet, withChats bool) ([]workload, error) {
	b.p.say("%d pods publish what they hold", podCount)
	for _, f := range []*fleet{b.tokens, chats} {
		if err := f.followed(ctx); err != nil {
			return nil, err
		}
	}
	e := load.Encoder{Model: tokensModel, BlockSize: blockSize}
	var work []workload
	for _, p := range prompts {
		tokens := p.blocks * blockSize
		var asJSON, asBase64, of8k load.Bodies
		for i := range p.count {
			seed := uint64(p.blocks*1000 + i)
			ids := load.Tokens(seed, tokens)
			if err := b.tokens.fill(seed, ids); err != nil {
				return nil, err
			}
			for _, form := range []struct {
				to     *load.Bodies
				form   load.Form
				tokens int
			}{{&asJSON, load.JSON, tokens}, {&asBase64, load.Base64, tokens}, {&of8k, load.JSON, 8192}} {
				body, err := e.Query(form.form, ids[:form.tokens])
				if err != nil {
					return nil, err
				}
				*form.to = append(*form.to, body)
			}
		}
		if p.blocks == 632 {
			work = append(work, workload{"512 blocks json", 8192, of8k})
		}
		work = append(work,
			workload{fmt.Sprintf("%d blocks json", p.blocks), tokens, asJSON},
			workload{fmt.Sprintf("%d blocks base64", p.blocks), tokens, asBase64})
		if err := b.tokens.filled(ctx, b.server, asBase64[p.count-1], p.blocks); err != nil {
			return nil, err
		}
	}
	var err error
	if b.ingest, err = newIngest(b.tokens); err != nil {
		return nil, err
	}
	if withChats {
		chat, err := b.fillChats(ctx, chats)
		if err != nil {
			return nil, err
		}
		work = append(work, chat)
	} else {
		b.p.say("no chats: scripts/test-tokenizers.sh fetches the tokenizer that they need")
	}
	var kept []workload
	for _, w := range work {
		if strings.Contains(w.name, b.o.only) {
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("no row has a name that contains %q", b.o.only)
	}
	return kept, nil
}

// fillChats makes the pods hold the begin that all chats have in common.
func (b *bench) fillChats(ctx context.Context, f *fleet) (workload, error) {
	turns := load.NewTurns(chatModel, 1, chatTokens, chatTurn)
	var buf []byte
	var got struct {
		Tokens []uint32 `json:"tokens"`
	}
	ask := func() error { return b.server.call("POST", "/tokenize", turns.Body(1<<40, &buf), &got) }
	if err := b.server.until(ctx, time.Minute, ask); err != nil { // until it is loaded
		return workload{}, fmt.Errorf("kvindex does not tokenize: %w", err)
	}
	n := len(got.Tokens) / blockSize
	if err := f.fill(1, got.Tokens[:n*blockSize]); err != nil {
		return workload{}, err
	}
	return workload{fmt.Sprintf("chat of %dk", len(got.Tokens)/1000), len(got.Tokens), turns},
		f.filled(ctx, b.server, turns.Body(1<<40, &buf), n)
}

// rows measures all workloads, without ingest and with it.
func (b *bench) rows(ctx context.Context, work []workload) error {
	for _, w := range work {
		if err := b.row(ctx, w, false); err != nil {
			return err
		}
	}
	if b.o.quiet {
		return nil
	}
	b.p.say("ingest without queries")
	stop := b.ingest.start(ctx)
	before, begin := b.server.cpu(), time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(b.o.seconds * float64(time.Second))):
	}
	b.idle = (b.server.cpu() - before).Seconds() / time.Since(begin).Seconds()
	b.report.IngestCPU = b.idle
	for _, w := range work {
		if err := b.row(ctx, w, true); err != nil {
			_ = stop()
			return err
		}
	}
	if err := stop(); err != nil {
		return err
	}
	lost, err := b.server.metric("kvindex_lost_batches_total", "")
	b.report.Lost = lost
	return err
}

// row measures one workload in both loops.
func (b *bench) row(ctx context.Context, w workload, ingest bool) error {
	b.p.say("%s%s", w.name, map[bool]string{true: " while pods publish"}[ingest])
	r := row{Name: w.name, Tokens: w.tokens, Ingest: ingest}
	o := load.Options{URL: b.server.url, Source: w.source, Connections: closedConnections}
	o.Duration = time.Duration(max(b.o.seconds/8, 0.1) * float64(time.Second))
	if _, err := load.Run(ctx, o); err != nil { // to warm up
		return err
	}
	begin := time.Now()
	stored, err := b.stored()
	if err != nil {
		return err
	}
	o.Duration = time.Duration(b.o.seconds * float64(time.Second))
	profiled := b.profile(o.Duration)
	cpu := b.server.cpu()
	closed, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	used := (b.server.cpu() - cpu).Seconds()
	if ingest {
		used -= b.idle * closed.Seconds
	}
	if err := <-profiled; err != nil {
		return err
	}
	o.Connections, o.Rate = openConnections, max(1, math.Floor(closed.PerSec*openShare))
	open, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	after, err := b.stored()
	if err != nil {
		return err
	}
	if ingest {
		r.Ingested = (after - stored) * ingestStep / time.Since(begin).Seconds()
	}
	r.PerSecond, r.CPU = closed.PerSec, max(0, used)*1e6/float64(max(1, closed.Answered))
	r.Rate, r.Closed, r.Open = o.Rate, timingOf(closed), timingOf(open)
	r.Bad = closed.Bad() + open.Bad()
	b.report.Rows = append(b.report.Rows, r)
	return ctx.Err()
}

// stored is how many events of stored blocks kvindex has applied.
func (b *bench) stored() (float64, error) {
	return b.server.metric("kvindex_events_total", `type="stored"`)
}

// profile writes a profile of kvindex's next seconds, if one is asked for.
func (b *bench) profile(d time.Duration) <-chan error {
	done := make(chan error, 1)
	if b.o.profile == "" {
		done <- nil
		return done
	}
	go func() {
		var data []byte
		err := b.server.call("GET", fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(d.Seconds()))), nil, &data)
		if err == nil {
			err = os.WriteFile(b.o.profile, data, 0o600)
		}
		done <- err
	}()
	return done
}
