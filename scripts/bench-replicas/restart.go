package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Before a replica is killed, and after it is back, a client asks for so long;
// it stays dead for deadFor.
const (
	calm    = 2 * time.Second
	deadFor = time.Second
)

// restarted is what was seen of the kill of one of two replicas.
type restarted struct {
	Ready    float64 `json:"ready_s"` // from its start on
	Live     float64 `json:"live_s"`  // all streams are live: exact
	Source   string  `json:"restored_from"`
	Age      float64 `json:"snapshot_age_s"`
	Bytes    float64 `json:"snapshot_bytes"`
	Messages float64 `json:"messages_read"` // of the log, until it was live
	Log      float64 `json:"messages_in_log"`

	Asked    int     `json:"asked"`
	Again    int     `json:"asked_again"`
	Failed   int     `json:"failed"`
	Less     int     `json:"less"`
	Unmarked int     `json:"less_unmarked"`
	Marked   int     `json:"marked"`
	Blind    float64 `json:"nobody_ready_s"`
}

// restart kills the second replica under load and starts it again.
func (b *bench) restart(ctx context.Context, r *report) (err error) {
	b.say("killing a replica under load, and starting it again")
	stop := b.fleet.load(ctx, r.Rate)
	defer func() { err = errors.Join(err, stop()) }()
	c := &client{fleet: b.fleet, replicas: append([]*replica(nil), b.replicas...)}
	stopAsking := c.start(ctx)
	defer func() { stopAsking() }()
	if err := b.snapshotThere(ctx); err != nil {
		return err
	}
	time.Sleep(calm)

	b.replicas[1].end(syscall.SIGKILL)
	time.Sleep(deadFor)
	begin := time.Now()
	back, err := startReplica(b.binary, b.dir, b.nats, b.redis)
	if err != nil {
		return err
	}
	b.replicas[1] = back
	c.replace(1, back)
	notReady := errors.New("a replica that was started again is not ready")
	if err := back.until(ctx, time.Minute, func() error {
		if !back.ready() {
			return notReady
		}
		return nil
	}); err != nil {
		return err
	}
	x := restarted{Ready: time.Since(begin).Seconds()}
	if err := back.allLive(ctx, b.o.engines); err != nil {
		return err
	}
	x.Live = time.Since(begin).Seconds()
	if err := x.restoredBy(back); err != nil {
		return err
	}
	time.Sleep(calm)
	stopAsking()
	x.Asked, x.Again, x.Failed, x.Less, x.Unmarked, x.Marked, x.Blind = c.asked, c.again, c.failed, c.less, c.unmarked, c.marked, c.blind.Seconds()
	r.Restart = x
	return nil
}

// snapshotThere waits for a snapshot that was begun under load.
func (b *bench) snapshotThere(ctx context.Context) error {
	written := func() (sum float64, err error) {
		for _, r := range b.replicas {
			n, err := r.metric("kvindex_snapshot_written_total")
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	before, err := written()
	if err != nil {
		return err
	}
	return b.replicas[0].until(ctx, time.Minute, func() error {
		now, err := written()
		if err == nil && now < before+2 {
			err = fmt.Errorf("%g snapshots are written, %g were before", now, before)
		}
		return err
	})
}

// restoredBy asks the replica what it began with.
func (x *restarted) restoredBy(r *replica) (err error) {
	x.readLog(r.log.String())
	if x.Messages, err = r.metric(`kvindex_nats_messages_total{result="taken"}`); err != nil {
		return err
	}
	x.Log, err = r.metric("kvindex_nats_position ")
	return err
}

// readLog reads what the replica says of its snapshot.
func (x *restarted) readLog(text string) {
	x.Source = "nothing"
	for line := range strings.Lines(text) {
		var entry struct {
			Msg    string        `json:"msg"`
			Source string        `json:"source"`
			Age    time.Duration `json:"age"`
			Bytes  float64       `json:"bytes"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Msg, "restored a snapshot") {
			x.Source, _, _ = strings.Cut(entry.Source, " ")
			x.Age, x.Bytes = entry.Age.Seconds(), entry.Bytes
		}
	}
}
