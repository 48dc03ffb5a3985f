package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// blockSize is the tokens of a block, vLLM's default and kthena's.
const blockSize = 16

// pods hold every block that was ever computed: what takes longest to look up.
var pods = [...]string{"pod-0.default", "pod-1.default", "pod-2.default", "pod-3.default"}

// replaced is the way that kvindex replaces: a router has the engine tokenize,
// and asks Redis for the blocks.
type replaced struct {
	engine *engine
	redis  *redisServer
}

// replacedTimes are how long the steps of one request took.
type replacedTimes struct {
	http   time.Duration // until the engine's answer is here
	decode time.Duration // its JSON
	hash   time.Duration
	redis  time.Duration
	total  time.Duration
	capped time.Duration // total, had only the first cappedBlocks been asked for
}

// cappedBlocks is how many blocks kthena asks for unless it is told otherwise.
const cappedBlocks = 128

// ask asks which pods hold how many leading blocks of a chat request.
func (r *replaced) ask(ctx context.Context, body []byte) (ids []uint32, scores map[string]int, t replacedTimes, err error) {
	begin := time.Now()
	raw, err := r.engine.post(ctx, body)
	if err != nil {
		return nil, nil, t, err
	}
	answered := time.Now()
	var answer tokenized
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, nil, t, fmt.Errorf("cannot decode the engine-like server's answer: %w", err)
	}
	decoded := time.Now()
	hashes := sha256Blocks(answer.Tokens)
	hashed := time.Now()
	scores, err = r.redis.match(ctx, hashes)
	done := time.Now()
	if err != nil {
		return nil, nil, t, err
	}
	t = replacedTimes{answered.Sub(begin), decoded.Sub(answered), hashed.Sub(decoded), done.Sub(hashed), done.Sub(begin), 0}
	if t.capped, err = r.capped(ctx, answer.Tokens); err != nil {
		return nil, nil, t, err
	}
	t.capped += t.http + t.decode
	return answer.Tokens, scores, t, nil
}

// capped is how long the first cappedBlocks take to hash and to look up.
func (r *replaced) capped(ctx context.Context, ids []uint32) (time.Duration, error) {
	begin := time.Now()
	_, err := r.redis.match(ctx, sha256Blocks(ids[:min(len(ids), cappedBlocks*blockSize)]))
	return time.Since(begin), err
}

// sha256Blocks hashes full blocks as kthena does: the first 63 bits of SHA-256
// over the tokens of a block in big-endian.
func sha256Blocks(ids []uint32) []uint64 {
	hashes := make([]uint64, 0, len(ids)/blockSize)
	var buf [4 * blockSize]byte
	for ; len(ids) >= blockSize; ids = ids[blockSize:] {
		for i, id := range ids[:blockSize] {
			binary.BigEndian.PutUint32(buf[4*i:], id)
		}
		sum := sha256.Sum256(buf[:])
		hashes = append(hashes, binary.BigEndian.Uint64(sum[:8])&^(1<<63))
	}
	return hashes
}
