package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/filestore"
	"github.com/kvindex/kvindex/indexer/snapshot/peer"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
)

// snapshotKind and snapshotVersion name the body of our snapshots: a head in JSON,
// after its length in 4 bytes, and what the index holds. The oldest version that
// is read has a head without a place in NATS.
const (
	snapshotKind    = "kvindex"
	snapshotVersion = 2
	snapshotOldest  = 1
)

// writerStands is for how many intervals a snapshot stands against those of
// replicas that know less: so many may fail or be late.
const writerStands = 3

// maxSnapshotBody bounds what is read of a body: about 20 bytes a block.
const maxSnapshotBody = 16 << 30

// snapshots takes and restores snapshots of the fleet and the index.
type snapshots struct {
	config config
	fleet  *events.Fleet
	index  *indexer.Index
	nats   natsReader
	log    *slog.Logger

	redis    redis.UniversalClient // nil: none
	sources  []snapshot.Source
	schedule *snapshot.Schedule // nil: nothing is written
	size     atomic.Int64       // of the index in the last snapshot
	progress restoring          // of restore
	restored atomic.Bool        // something was
	hurry    chan struct{}      // closed at the end: what is written then is to be there soon
	wg       sync.WaitGroup
}

func newSnapshots(c config, f *events.Fleet, x *indexer.Index, n natsReader, log *slog.Logger) (*snapshots, error) {
	s := &snapshots{config: c, fleet: f, index: x, nats: n, log: log, hurry: make(chan struct{})}
	var sinks []snapshot.Sink
	for _, url := range c.Snapshot.Peers {
		p, err := peer.New(peer.Options{URL: url, TokenFile: c.Snapshot.PeerTokenFile})
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, p)
	}
	if c.Snapshot.Redis != "" {
		store, err := s.openRedis()
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, store)
		sinks = append(sinks, store)
	}
	if c.Snapshot.Dir != "" {
		store, err := filestore.New(filestore.Options{Dir: c.Snapshot.Dir})
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, store)
		sinks = append(sinks, store)
	}
	if len(sinks) > 0 {
		s.schedule = snapshot.NewSchedule(snapshot.ScheduleOptions{Content: s, Sinks: sinks, Interval: c.Snapshot.Interval, Logger: log})
	}
	return s, nil
}

func (s *snapshots) openRedis() (*redisstore.Store, error) {
	c := s.config.Snapshot
	conn, err := redisstore.ParseURL(c.Redis)
	if err != nil {
		return nil, err
	}
	conn.PasswordFile, conn.CAFile = c.RedisPasswordFile, c.RedisCAFile
	redis.SetLogger(quiet{}) // what it would say comes back as errors
	if s.redis, err = redisstore.Connect(conn); err != nil {
		return nil, err
	}
	return redisstore.New(redisstore.Options{Client: s.redis, Name: conn.String(), Cluster: c.Cluster, Stands: writerStands * c.Interval})
}

// Meta implements snapshot.Content.
func (s *snapshots) Meta() snapshot.Meta {
	m := snapshot.Meta{Cluster: s.config.Snapshot.Cluster, Kind: snapshotKind, Version: snapshotVersion, Params: s.params()}
	s.fleet.Freeze(func(states []events.InstanceState) { m.Complete = complete(states) })
	return m
}

// complete is of how many streams nothing is missing: neither what was before we
// came nor anything since.
func complete(states []events.InstanceState) (n int) {
	for _, in := range states {
		for _, st := range in.Streams {
			if st.HistoryFrom == 0 && st.Lost == 0 && st.Poison == 0 && st.BadEvents == 0 && st.Refused == 0 {
				n++
			}
		}
	}
	return n
}

// params are what a snapshot's content depends on, beside the seed, which the
// index compares without telling it.
func (s *snapshots) params() map[string]string {
	return map[string]string{"duplicates": s.config.Index.Duplicates}
}

// Changes implements snapshot.Content.
func (s *snapshots) Changes() uint64 { return s.fleet.Changes() }

// WriteBody implements snapshot.Content. Streams stand still while the index is
// copied, not while w is written to.
func (s *snapshots) WriteBody(w io.Writer) error {
	var head, body []byte
	var err error
	buf, release := snapshot.Room(s.room()) // growing it would take most of the time that streams stand still
	defer release()
	mark := s.nats.mark()
	s.fleet.Freeze(func(states []events.InstanceState) {
		head, err = json.Marshal(snapshotHead{states, mark})
		body = s.index.AppendSnapshot(buf)
	})
	s.size.Store(int64(len(body)))
	if err != nil {
		return fmt.Errorf("cannot encode the instances: %w", err)
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...)); err != nil {
		return err
	}
	return snapshot.Pace{Most: min(15*time.Second, s.config.Snapshot.Interval/4), Hurry: s.hurry}.Write(w, body)
}

// room is how many bytes the next snapshot may need.
func (s *snapshots) room() int {
	last, blocks := int(s.size.Load()), 0
	for _, t := range s.index.Stats().Tables {
		blocks += t.UniqueBlocks
	}
	return max(last+last/8, 20*blocks)
}

// restore goes on from the newest snapshot that is whole and fits, if there is
// one, and returns the instances that it tells of. It is called before anything
// is followed. goOn is false if ctx ended it.
func (s *snapshots) restore(ctx context.Context) (told []events.InstanceState, goOn bool) {
	if len(s.sources) == 0 {
		return nil, true
	}
	defer s.progress.log(s.log)()
	// What goes on may take its time. If all sources together bring nothing for so
	// long, it is over.
	patience := max(s.config.Events.WarmupTimeout, 5*time.Second)
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	nothing := time.AfterFunc(patience, cancel)
	defer nothing.Stop()
	var read *indexer.Snapshot // and not used
	var head snapshotHead
	decode := func(_ snapshot.Header, body io.Reader) (func(), error) {
		if read != nil {
			read.Discard()
			read = nil
		}
		b, err := io.ReadAll(io.LimitReader(body, maxSnapshotBody))
		if err != nil {
			return nil, err
		}
		if head, read, err = decodeSnapshot(s.index, b); err != nil {
			nothing.Reset(patience)
			return nil, err
		}
		return func() {
			read.Use()
			s.fleet.Restore(head.Instances, read.Holders)
			s.nats.resume(head.NATS)
			s.size.Store(int64(len(b)))
			if read.Refused > 0 {
				s.log.Warn("the index is too small for the snapshot", "blocks_left_out", read.Refused)
			}
			read = nil
			s.restored.Store(true)
		}, nil
	}
	chain := snapshot.Chain{Sources: s.sources, Patience: patience * 2 / 3, Progress: func(p snapshot.Progress) {
		s.progress.moved(p)
		nothing.Reset(patience)
		if p.Whole {
			nothing.Stop() // building the index depends on nobody
		}
	}}
	done, err := chain.Restore(trying, snapshot.Expect{
		Cluster: s.config.Snapshot.Cluster, Kind: snapshotKind, MinVersion: snapshotOldest, MaxVersion: snapshotVersion, Params: s.params(),
	}, decode)
	if read != nil {
		read.Discard()
	}
	for _, f := range done.Failed {
		if !errors.Is(f.Err, snapshot.ErrNone) {
			s.log.Warn("a snapshot cannot be used", "source", f.Source, "id", f.ID, "reason", string(f.Reason), "error", f.Err)
		}
	}
	if ctx.Err() != nil && err != nil {
		s.log.Info("no snapshot was restored: stopping", "progress", s.progress.String())
		return nil, false
	}
	if err != nil {
		s.log.Info("no snapshot to go on from: starting cold", "looked_at", len(s.sources))
		return nil, true
	}
	s.log.Info("restored a snapshot: what it holds is suspect until its engines prove it", "source", done.Source, "id", done.Info.ID,
		"age", time.Since(done.Info.Created).Round(time.Second), "bytes", done.Info.Bytes, "took", done.Took.Round(time.Millisecond), "instances", len(head.Instances))
	s.followAgain(head.Instances)
	return head.Instances, true
}

// decodeSnapshot reads a body, for an index.
func decodeSnapshot(x *indexer.Index, b []byte) (head snapshotHead, read *indexer.Snapshot, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return head, nil, errors.New("the body is too short")
	}
	n := binary.LittleEndian.Uint32(b)
	if err := json.Unmarshal(b[4:4+n], &head); err != nil {
		return head, nil, fmt.Errorf("the states of instances: %w", err)
	}
	read, err = x.ReadSnapshot(b[4+n:])
	return head, read, err
}

// followAgain follows the instances that had registered over HTTP: they may not
// know that they have to do it again.
func (s *snapshots) followAgain(states []events.InstanceState) {
	for _, in := range states {
		if in.Spec.Source != "register" {
			continue
		}
		if _, err := s.fleet.Add(in.Spec); err != nil {
			s.log.Warn("cannot follow an instance of the snapshot", "instance", in.Spec.ID, "error", err)
		}
	}
}

// start writes snapshots until ctx ends, and then a last one; wait waits for
// that.
func (s *snapshots) start(ctx context.Context) {
	context.AfterFunc(ctx, func() { close(s.hurry) })
	if s.schedule != nil {
		s.wg.Go(func() { s.schedule.Run(ctx) })
	}
}

func (s *snapshots) wait() { s.wg.Wait() }

func (s *snapshots) close() {
	if s.redis != nil {
		_ = s.redis.Close()
	}
}

// validate says what is wrong with the configuration of snapshots.
func (c *snapshotConfig) validate() error {
	var errs []error
	if c.Redis != "" {
		if _, err := redisstore.ParseURL(c.Redis); err != nil {
			errs = append(errs, fmt.Errorf("redis: %w", err))
		}
	}
	for _, url := range c.Peers {
		if err := (peer.Options{URL: url}).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("peers: %w", err))
		}
	}
	if c.Interval < time.Second {
		errs = append(errs, fmt.Errorf("interval: %v is less than 1s", c.Interval))
	}
	if strings.Trim(c.Cluster, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || c.Cluster == "" {
		errs = append(errs, fmt.Errorf("cluster: %q is not letters, digits and . _ -", c.Cluster))
	}
	if c.Dir != "" {
		if st, err := os.Stat(c.Dir); err == nil && !st.IsDir() {
			errs = append(errs, fmt.Errorf("dir: %q is no directory", c.Dir))
		}
	}
	return errors.Join(errs...)
}

// snapshotCollector shows what became of snapshots as metrics.
type snapshotCollector struct {
	schedule                                    *snapshot.Schedule
	written, failed, took, bytes, last, skipped *prometheus.Desc
	keptBack                                    *prometheus.Desc
}

func (s *snapshots) collectors() []prometheus.Collector {
	if s.schedule == nil {
		return nil
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_snapshot_"+name, help, append([]string{"to"}, labels...), nil)
	}
	return []prometheus.Collector{&snapshotCollector{
		schedule: s.schedule,
		written:  desc("written_total", "Snapshots written."),
		failed:   desc("failed_total", "Snapshots that could not be written, by reason.", "reason"),
		skipped:  desc("skipped_total", "Snapshots not written because nothing had changed, or others' were newer."),
		keptBack: desc("kept_back_total", "Snapshots not written because a replica that knows more writes to the same place."),
		took:     desc("last_duration_seconds", "Time that the last snapshot took."),
		bytes:    desc("last_bytes", "Size of the last snapshot."),
		last:     desc("last_written_timestamp_seconds", "When the last snapshot was written."),
	}}
}

// Describe implements prometheus.Collector.
func (c *snapshotCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.written, c.failed, c.took, c.bytes, c.last, c.skipped, c.keptBack} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *snapshotCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, s := range c.schedule.Counters() {
		send(c.written, prometheus.CounterValue, float64(s.Written), s.Sink)
		send(c.keptBack, prometheus.CounterValue, float64(s.Fuller), s.Sink)
		send(c.skipped, prometheus.CounterValue, float64(s.Unchanged+s.Superseded), s.Sink)
		for reason, n := range s.Failed {
			send(c.failed, prometheus.CounterValue, float64(n), s.Sink, string(reason))
		}
		if !s.LastWritten.IsZero() {
			send(c.took, prometheus.GaugeValue, s.LastTook.Seconds(), s.Sink)
			send(c.bytes, prometheus.GaugeValue, float64(s.Last.Bytes), s.Sink)
			send(c.last, prometheus.GaugeValue, float64(s.LastWritten.Unix()), s.Sink)
		}
	}
}
