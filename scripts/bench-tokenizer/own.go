package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/chat"
)

// own is kvindex's way: a registry renders and tokenizes, an index in memory
// matches.
type own struct {
	registry *tokenizer.Registry
	renderer *timedRenderer
	hash     tokenizer.BlockHash
	index    *indexer.Index
	table    *indexer.Table
	holders  []*indexer.Holder

	sums   []uint64
	local  []indexer.LocalHash
	result indexer.Result
}

// ownTimes are how long the steps of one request took.
type ownTimes struct {
	render   time.Duration
	tokenize time.Duration // and the hashes of the blocks
	match    time.Duration
	total    time.Duration
}

// prefixCacheBytes is the default of kvindex serve.
const prefixCacheBytes = 64 << 20

func newOwn(ctx context.Context, f *modelFiles) (*own, error) {
	r, err := f.newRenderer()
	if err != nil {
		return nil, err
	}
	o := &own{renderer: &timedRenderer{renderer: r}}
	load := func(context.Context, string) (*tokenizer.Parts, error) {
		e, err := bpe.New(f.tokenizer)
		return &tokenizer.Parts{JSON: f.tokenizer, Encoder: e, Engine: "bpe", Renderer: o.renderer}, err
	}
	o.registry = tokenizer.NewRegistry(tokenizer.RegistryOptions{Load: load, CacheBytes: prefixCacheBytes})
	o.registry.Add(ctx, chatModel, f.name)
	o.registry.Wait()
	if st, _ := o.registry.Status(chatModel); st.State != tokenizer.Ready {
		return nil, fmt.Errorf("cannot load %s: it is %s: %s", f.name, st.State, st.Reason)
	}
	if o.index, err = indexer.New(indexer.Options{}); err != nil {
		return nil, err
	}
	hasher := o.index.Hasher()
	o.hash = tokenizer.BlockHash{Size: blockSize, Hash: func(ids []uint32) uint64 { return uint64(hasher.Local(ids, nil)) }}
	o.table = o.index.Table(indexer.TableKey{Model: chatModel, BlockSize: blockSize})
	for _, p := range pods {
		o.holders = append(o.holders, o.table.Open(indexer.StreamID{Instance: p}))
	}
	return o, nil
}

func (o *own) close() {
	o.index.Close()
	o.registry.Close()
}

// timedRenderer notes how long its last call took. One goroutine at a time may
// use it.
type timedRenderer struct {
	*renderer
	took time.Duration
}

// Render implements tokenizer.Renderer.
func (r *timedRenderer) Render(req tokenizer.Request) (tokenizer.Rendered, error) {
	begin := time.Now()
	text, addSpecial, err := r.render(req.Body, chat.ChatCompletions)
	r.took = time.Since(begin)
	return tokenizer.Rendered{Text: text, AddSpecial: addSpecial}, err
}

// store says of every pod that it holds the blocks of a prompt.
func (o *own) store(ids []uint32) error {
	run := indexer.Run{Tier: indexer.GPU}
	for i, seq := range o.table.Sequence(ids, 0, nil) {
		run.Engine = append(run.Engine, indexer.EngineHash(seq))
		run.Local = append(run.Local, o.index.Hasher().Local(ids[i*blockSize:(i+1)*blockSize], nil))
	}
	for _, h := range o.holders {
		if r := h.Store(run); r.Stored+r.Duplicates != len(run.Engine) {
			return fmt.Errorf("cannot store %d blocks: %+v", len(run.Engine), r)
		}
	}
	return nil
}

// ask asks which pods hold how many leading blocks of a chat request.
func (o *own) ask(ctx context.Context, body []byte) (tokenizer.Tokens, ownTimes, error) {
	begin := time.Now()
	tokens, _, err := o.registry.Tokens(ctx, chatModel, tokenizer.Request{Kind: tokenizer.ChatCompletions, Body: body})
	if err != nil {
		return tokens, ownTimes{}, fmt.Errorf("cannot tokenize a chat: %w", err)
	}
	o.sums = tokens.AppendBlocks(&o.hash, o.sums[:0])
	hashed := time.Now()
	o.local = o.local[:0]
	for _, h := range o.sums {
		o.local = append(o.local, indexer.LocalHash(h))
	}
	o.table.MatchLocal(o.local, 0, 0, &o.result)
	done := time.Now()
	t := ownTimes{render: o.renderer.took, match: done.Sub(hashed), total: done.Sub(begin)}
	t.tokenize = hashed.Sub(begin) - t.render
	return tokens, t, nil
}

// scores of the last match, by pod.
func (o *own) scores() map[string]int {
	m := map[string]int{}
	for _, s := range o.result.Streams {
		m[s.Stream.Instance] = s.Blocks[indexer.GPU]
	}
	return m
}
