package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/chat"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// wholeConversations is of how many conversations the requests are tokenized as
// a whole, too, by both encoders in this process.
const wholeConversations = 3

// observation is one request of a conversation, from turn 2 on.
type observation struct {
	turn     int
	tokens   int
	replaced replacedTimes
	own      ownTimes
}

// whole is how long one request took to tokenize in full.
type whole struct {
	turn    int
	hf, bpe time.Duration
}

// chatsResult is all that was measured of conversations that grow alike.
type chatsResult struct {
	size         int
	growth       growth
	observations []observation
	wholes       []whole
	cacheBytes   []int // of the prefix cache, a conversation
	lastTokens   []int // of the last turn, a conversation
}

// chats measures conversations, one after the other: each is new to all that
// tokenizes, and each turn continues what the turn before has shown.
type chats struct {
	files    *modelFiles
	engine   *engine
	redis    *redisServer
	writer   *writer
	renderer *renderer // for whole texts
	library  *hf.Encoder
	bare     *tokenizer.Tokenizer // of package bpe, without a cache of texts
	progress *progress
}

func newChats(ctx context.Context, dir string, f *modelFiles, c *corpus, p *progress) (ch *chats, err error) {
	p.say("chats: starting the engine-like server and Redis")
	ch = &chats{files: f, progress: p}
	defer func() {
		if err != nil {
			ch.close()
		}
	}()
	if ch.engine, err = startEngine(ctx, dir); err != nil {
		return nil, err
	}
	if ch.redis, err = startRedis(ctx); err != nil {
		return nil, err
	}
	if ch.renderer, err = f.newRenderer(); err != nil {
		return nil, err
	}
	if ch.library, err = f.newLibrary(); err != nil {
		return nil, err
	}
	if ch.bare, err = f.newOwn(nil); err != nil {
		return nil, err
	}
	ch.writer, err = newWriter(c, ch.bare)
	return ch, err
}

func (ch *chats) close() {
	if ch.library != nil {
		ch.library.Close()
	}
	if ch.redis != nil {
		ch.redis.stop()
	}
	if ch.engine != nil {
		ch.engine.stop()
	}
}

// measure measures n conversations, after one that warms everything up.
func (ch *chats) measure(ctx context.Context, size int, g growth, n int) (*chatsResult, error) {
	o, err := newOwn(ctx, ch.files)
	if err != nil {
		return nil, err
	}
	defer o.close()
	if err := ch.redis.client.FlushAll(ctx).Err(); err != nil {
		return nil, fmt.Errorf("cannot empty Redis: %w", err)
	}
	res := &chatsResult{size: size, growth: g}
	for i := range n + 1 {
		ch.progress.tick("chats: %d tokens, %s: conversation %d of %d", size, g.Name, i, n)
		before := o.registry.CacheStats()
		obs, err := ch.conversation(ctx, o, g, res, i > 0 && i <= wholeConversations)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue
		}
		after := o.registry.CacheStats()
		if after.EvictedNodes > 0 {
			return nil, errors.New("the prefix cache is too small for the conversations: ask for fewer")
		}
		res.observations = append(res.observations, obs...)
		res.cacheBytes = append(res.cacheBytes, after.Bytes-before.Bytes)
		res.lastTokens = append(res.lastTokens, obs[len(obs)-1].tokens)
	}
	return res, nil
}

// conversation takes a new conversation through its turns, on the replaced way
// and then on kvindex's, and compares what they find.
func (ch *chats) conversation(ctx context.Context, o *own, g growth, res *chatsResult, wholes bool) ([]observation, error) {
	bodies, err := ch.writer.conversation(g)
	if err != nil {
		return nil, err
	}
	ids, err := ch.tokenizeWhole(bodies, wholes, res)
	if err != nil {
		return nil, err
	}
	if err := o.store(ids); err != nil {
		return nil, err
	}
	if err := ch.redis.store(ctx, sha256Blocks(ids)); err != nil {
		return nil, err
	}
	obs := make([]observation, turns)
	found := make([]struct {
		ids    []uint32
		scores map[string]int
	}, turns)
	way := &replaced{engine: ch.engine, redis: ch.redis}
	runtime.GC()
	for i, body := range bodies {
		if found[i].ids, found[i].scores, obs[i].replaced, err = way.ask(ctx, body); err != nil {
			return nil, err
		}
		obs[i].turn, obs[i].tokens = i+1, len(found[i].ids)
	}
	runtime.GC()
	for i, body := range bodies {
		tokens, times, err := o.ask(ctx, body)
		if err != nil {
			return nil, err
		}
		obs[i].own = times
		if !slices.Equal(tokens.AppendIDs(nil), found[i].ids) {
			return nil, fmt.Errorf("turn %d of %d tokens: %w", i+1, obs[i].tokens, errDiffers)
		}
		want := map[string]int{}
		for _, p := range pods {
			want[p] = obs[i].tokens / blockSize
		}
		if got := o.scores(); !maps.Equal(got, want) || !maps.Equal(found[i].scores, want) {
			return nil, fmt.Errorf("turn %d: the index finds %v, Redis %v, and both hold %v", i+1, got, found[i].scores, want)
		}
	}
	return obs[1:], nil // the first turn is new from its beginning
}

// errDiffers is wrapped by what ends the program because token ids differ.
var errDiffers = errors.New("package bpe and the library give different token ids")

// tokenizeWhole returns the ids of the last turn. If measured, the turns are
// tokenized in order by both encoders and timed; the ids are compared.
func (ch *chats) tokenizeWhole(bodies [][]byte, measured bool, res *chatsResult) ([]uint32, error) {
	if !measured {
		bodies = bodies[len(bodies)-1:]
	}
	var ids []uint32
	for i, body := range bodies {
		text, addSpecial, err := ch.renderer.render(body, chat.ChatCompletions)
		if err != nil {
			return nil, fmt.Errorf("cannot render a chat: %w", err)
		}
		begin := time.Now()
		if ids, err = ch.library.Append(ids[:0], text); err != nil {
			return nil, fmt.Errorf("cannot tokenize a chat: %w", err)
		}
		took := time.Since(begin)
		if !measured {
			continue
		}
		begin = time.Now()
		tokens, err := ch.bare.Encode(text, addSpecial)
		if err != nil {
			return nil, fmt.Errorf("cannot tokenize a chat: %w", err)
		}
		own := tokens.AppendIDs(nil)
		if i > 0 {
			res.wholes = append(res.wholes, whole{i + 1, took, time.Since(begin)})
		}
		if !slices.Equal(own, ids) {
			return nil, fmt.Errorf("turn %d of %d tokens: %w", i+1, len(ids), errDiffers)
		}
	}
	return ids, nil
}
