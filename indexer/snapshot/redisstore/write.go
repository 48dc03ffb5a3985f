package redisstore

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/indexer/snapshot"
)

// publish makes a snapshot the latest, or the one before if it is older than
// that, and returns the id that is neither any more; or "fuller" if the latest is
// by another who knows more. It may be run again if its answer was lost.
//
//	KEYS: latest, previous, manifest, writer
//	ARGV: id, milliseconds to live, writer, complete streams, milliseconds to stand
var publish = redis.NewScript(`
local function id(key)
  local v = redis.call('GET', key)
  if v and #v == 26 and string.find(v, '^[0-7][0-9A-HJKMNP-TV-Z]+$') then return v end
  return ''
end
local latest, previous, new, dropped = id(KEYS[1]), id(KEYS[2]), ARGV[1], ''
if new == latest or new == previous then return '' end
local who, what, complete = string.match(redis.call('GET', KEYS[4]) or '', '^(%x+) (%w+) (%d+)$')
if who and who ~= ARGV[3] and what == latest and tonumber(complete) > tonumber(ARGV[4]) then return 'fuller' end
if redis.call('EXISTS', KEYS[3]) == 0 then return redis.error_reply('ERR the manifest is gone') end
if new > latest then
  latest, previous, dropped = new, latest, previous
  redis.call('SET', KEYS[4], ARGV[3] .. ' ' .. new .. ' ' .. ARGV[4], 'PX', ARGV[5])
elseif new > previous then
  previous, dropped = new, previous
else
  return new
end
redis.call('SET', KEYS[1], latest, 'PX', ARGV[2])
if previous ~= '' then redis.call('SET', KEYS[2], previous, 'PX', ARGV[2]) end
return dropped
`)

// Write stores a snapshot whose body write produces. If it fails, what was there
// before stays. ErrSuperseded means that two newer ones are there already, so
// that this one was not kept, ErrFuller that the latest is by another that knows
// more and is at work: mostly that is known before anything is written.
//
// Redis holds up to two snapshots, those that were replaced within the last
// Grace, and those that are being written.
func (s *Store) Write(ctx context.Context, m snapshot.Meta, write func(io.Writer) error) (snapshot.Info, error) {
	m.Cluster = s.o.Cluster
	ids, err := s.pointers(ctx)
	if err != nil {
		return snapshot.Info{}, s.wrap("write a snapshot to", err)
	}
	var newest snapshot.ID
	if len(ids) > 0 {
		newest = ids[0]
	}
	if held, err := s.held(ctx); err != nil {
		return snapshot.Info{}, s.wrap("write a snapshot to", err)
	} else if held.by != s.writer && held.id == newest && held.complete > m.Complete {
		return snapshot.Info{}, s.wrap("write a snapshot to", snapshot.ErrFuller)
	}
	now := time.Now()
	u := &uploader{s: s, id: s.ids.Next(now, newest), complete: m.Complete}
	info, err := u.write(ctx, snapshot.NewHeader(u.id, now, m), write)
	if err != nil {
		u.discard(ctx)
		return snapshot.Info{}, s.wrap("write a snapshot to", err)
	}
	return info, nil
}

// uploader writes one snapshot.
type uploader struct {
	s        *Store
	id       snapshot.ID
	complete int // see snapshot.Meta
	sent     int // chunks
}

func (u *uploader) write(ctx context.Context, h snapshot.Header, write func(io.Writer) error) (snapshot.Info, error) {
	w, err := snapshot.NewChunkWriter(h, func(_ int, chunk []byte) error {
		return u.send(ctx, chunk)
	})
	if err != nil {
		return snapshot.Info{}, err
	}
	info, manifest, err := w.Fill(ctx, write)
	if err != nil {
		return snapshot.Info{}, err
	}
	return info, u.publish(ctx, manifest)
}

// send sends a chunk. There is one in each round trip: Redis, which serves others
// too, has little to do at once, and so have we.
func (u *uploader) send(ctx context.Context, chunk []byte) error {
	// A writer that dies leaves its chunks behind, but not for long. One that
	// takes longer than that to the end fails in publish.
	err := u.s.o.Client.Set(ctx, u.s.chunk(u.id, u.sent), chunk, u.s.o.Grace).Err()
	u.sent++
	return err
}

// publish makes what was written a snapshot.
func (u *uploader) publish(ctx context.Context, manifest []byte) error {
	s := u.s
	if kept, err := s.expire(ctx, u.id, u.sent, s.o.TTL); err != nil {
		return err
	} else if kept < u.sent {
		return snapshot.Reject(snapshot.ReasonMissing, "%d of %d chunks have gone while it was written: is Redis out of memory, or Grace (%v) too short?", u.sent-kept, u.sent, s.o.Grace)
	}
	if err := s.o.Client.Set(ctx, s.manifest(u.id), manifest, s.o.TTL).Err(); err != nil {
		return err
	}
	keys := []string{s.latest(), s.previous(), s.manifest(u.id), s.writerKey()}
	dropped, err := publish.Run(ctx, s.o.Client, keys, u.id.String(), s.o.TTL.Milliseconds(), s.writer, u.complete, s.o.Stands.Milliseconds()).Text()
	if err != nil {
		return err
	}
	if dropped == "fuller" {
		return snapshot.ErrFuller
	}
	if dropped == u.id.String() {
		return snapshot.ErrSuperseded
	}
	if id, err := snapshot.ParseID(dropped); err == nil {
		s.retire(ctx, id)
	}
	return nil
}

// expire sets how long chunks stay, and returns how many are there.
func (s *Store) expire(ctx context.Context, id snapshot.ID, chunks int, ttl time.Duration) (kept int, err error) {
	const most = 1000 // in a round trip
	for first := 0; first < chunks; first += most {
		replies, err := s.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n := first; n < min(first+most, chunks); n++ {
				p.PExpire(ctx, s.chunk(id, n), ttl)
			}
			return nil
		})
		if err != nil {
			return kept, err
		}
		for _, r := range replies {
			if b, ok := r.(*redis.BoolCmd); ok && b.Val() {
				kept++
			}
		}
	}
	return kept, nil
}

// retire makes a snapshot that was replaced go soon. If that fails, it goes when
// its time to live has passed.
func (s *Store) retire(ctx context.Context, id snapshot.ID) {
	_, info, err := s.describe(ctx, id)
	if err != nil {
		return
	}
	if _, err := s.expire(ctx, id, info.Chunks, s.o.Grace); err == nil {
		s.o.Client.PExpire(ctx, s.manifest(id), s.o.Grace)
	}
}

// discard removes what a failed write left, if Redis answers and does not hold
// it to be a snapshot (the answer to publish may have been lost). Else it goes
// by itself.
func (u *uploader) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if ids, err := u.s.pointers(ctx); err != nil || slices.Contains(ids, u.id) {
		return
	}
	keys := []string{u.s.manifest(u.id)}
	for n := range u.sent {
		keys = append(keys, u.s.chunk(u.id, n))
	}
	for len(keys) > 0 {
		n := min(1000, len(keys))
		if u.s.o.Client.Unlink(ctx, keys[:n]...).Err() != nil {
			return
		}
		keys = keys[n:]
	}
}
