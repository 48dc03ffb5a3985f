package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// keep makes our latest snapshot stand for longer, and reports whether the latest
// is ours or by another that knows as much.
//
//	KEYS: latest, writer    ARGV: writer, complete streams, milliseconds to stand
var keep = redis.NewScript(`
local who, what, complete = string.match(redis.call('GET', KEYS[2]) or '', '^(%x+) (%w+) (%d+)$')
if not who or what ~= redis.call('GET', KEYS[1]) then return 0 end
if who == ARGV[1] then
  redis.call('SET', KEYS[2], who .. ' ' .. what .. ' ' .. ARGV[2], 'PX', ARGV[3])
  return 1
end
if tonumber(complete) >= tonumber(ARGV[2]) then return 1 end
return 0
`)

// Keep implements snapshot.Keeper.
func (s *Store) Keep(ctx context.Context, m snapshot.Meta) (kept bool, err error) {
	n, err := keep.Run(ctx, s.o.Client, []string{s.latest(), s.writerKey()}, s.writer, m.Complete, s.o.Stands.Milliseconds()).Int()
	return n == 1, s.wrap("keep a snapshot in", err)
}

func (s *Store) writerKey() string { return s.prefix + "writer" }

// holder is who wrote the latest snapshot, if that stands.
type holder struct {
	by       string
	id       snapshot.ID
	complete int
}

// held reads who that is; the zero value is nobody.
func (s *Store) held(ctx context.Context) (holder, error) {
	text, err := s.o.Client.Get(ctx, s.writerKey()).Result()
	if errors.Is(err, redis.Nil) {
		return holder{}, nil
	}
	if err != nil {
		return holder{}, err
	}
	var h holder
	var id string
	if _, err := fmt.Sscan(text, &h.by, &id, &h.complete); err != nil {
		return holder{}, nil //nolint:nilerr // it is nobody's: the next one that writes replaces it
	}
	if h.id, err = snapshot.ParseID(id); err != nil {
		return holder{}, nil //nolint:nilerr // likewise
	}
	return h, nil
}
