package api

import (
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// fleetCollector reads the counters of streams and tables when they are
// scraped, so that a series ends with its instance.
type fleetCollector struct {
	s *Server

	buildInfo, ready                                  *prometheus.Desc
	batches, events, skips, lost, replays, reconnects *prometheus.Desc
	lag, age, live, suspect, pending                  *prometheus.Desc
	streams, instances                                *prometheus.Desc
	streamBlocks                                      *prometheus.Desc
	uniqueBlocks, orphanBlocks, indexBytes            *prometheus.Desc
}

func newFleetCollector(s *Server) *fleetCollector {
	table := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_"+name, help, []string{"model", "block_size", "bigram"}, nil)
	}
	stream := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_"+name, help, append([]string{"instance", "dp_rank"}, more...), nil)
	}
	return &fleetCollector{
		s:         s,
		buildInfo: prometheus.NewDesc("kvindex_build_info", "1, labelled with the versions of kvindex and Go.", []string{"version", "go_version"}, nil),
		ready:     prometheus.NewDesc("kvindex_ready", "1 if /readyz says yes.", nil, nil),

		batches:    stream("batches_total", "Event batches received, by what became of them.", "result"),
		events:     stream("events_total", "Events in applied batches, by type.", "type"),
		skips:      stream("skipped_events_total", "Events that could not be applied, by reason.", "reason"),
		lost:       stream("lost_batches_total", "Batches that the engine numbered and nobody delivered."),
		replays:    stream("replays_total", "Replays asked of the engine."),
		reconnects: stream("reconnects_total", "Connections to the engine after the first."),

		lag:     stream("stream_lag_seconds", "From the engine's timestamp of the last batch to its application; clocks of two machines."),
		age:     stream("stream_last_event_age_seconds", "Since the last event was applied."),
		live:    stream("stream_live", "1 if every event up to now has been applied."),
		suspect: stream("stream_suspect_blocks", "Blocks that answer and are not known to be held still."),
		pending: stream("stream_pending_batches", "Batches that wait for an earlier one."),

		streams:   prometheus.NewDesc("kvindex_streams", "Streams, by state.", []string{"state"}, nil),
		instances: prometheus.NewDesc("kvindex_instances", "Instances, by model and state.", []string{"model", "state"}, nil),

		streamBlocks: stream("stream_blocks", "Blocks that a stream holds, by tier.", "tier"),
		uniqueBlocks: table("unique_blocks", "Distinct blocks that any stream holds."),
		orphanBlocks: table("orphan_blocks", "Blocks that wait for the announcement of their parent."),
		indexBytes:   table("index_bytes", "Memory of the block table, estimated from its counts."),
	}
}

// Describe sends what Collect may send.
func (f *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		f.buildInfo, f.ready, f.batches, f.events, f.skips, f.lost, f.replays, f.reconnects, f.lag, f.age,
		f.live, f.suspect, f.pending, f.streams, f.instances, f.streamBlocks, f.uniqueBlocks,
		f.orphanBlocks, f.indexBytes,
	} {
		ch <- d
	}
}

// Collect reads the fleet, the index and the tokenizers.
func (f *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(f.buildInfo, 1, f.s.version, runtime.Version())
	r, _ := f.s.readiness()
	gauge(f.ready, one(r.Status == "ready"))
	for _, t := range f.s.index.Stats().Tables {
		of := []string{t.Key.Model, strconv.Itoa(t.Key.BlockSize), strconv.FormatBool(t.Key.Bigram)}
		gauge(f.uniqueBlocks, float64(t.UniqueBlocks), of...)
		gauge(f.orphanBlocks, float64(t.OrphanBlocks), of...)
		gauge(f.indexBytes, float64(t.Bytes), of...)
	}
	streams := map[State]int{}
	type group struct {
		model string
		state State
	}
	instances := map[group]int{}
	for _, inst := range f.s.fleet.Instances() {
		d, ok := f.s.fleet.Detail(inst.ID)
		if !ok {
			continue
		}
		instances[group{d.Model, d.State}]++
		for i := range d.Streams {
			streams[d.Streams[i].State]++
			f.collectStream(ch, gauge, d.ID, &d.Streams[i])
		}
	}
	for _, state := range states() {
		gauge(f.streams, float64(streams[state]), string(state))
	}
	for g, n := range instances {
		gauge(f.instances, float64(n), g.model, string(g.state))
	}
}

// collectStream sends the metrics of one stream.
func (f *fleetCollector) collectStream(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string), id string, s *StreamDetail) {
	rank := strconv.Itoa(s.DPRank)
	counter := func(d *prometheus.Desc, v uint64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{id, rank}, more...)...)
	}
	for result, n := range s.BatchResults {
		counter(f.batches, n, result)
	}
	for kind, n := range s.Events {
		counter(f.events, n, kind)
	}
	for reason, n := range s.Skips {
		counter(f.skips, n, reason)
	}
	counter(f.lost, s.LostBatches)
	counter(f.replays, s.Replays)
	counter(f.reconnects, s.Reconnects)
	if s.Lag.Known {
		gauge(f.lag, s.Lag.Since.Seconds(), id, rank)
	}
	if s.LastEvent.Known {
		gauge(f.age, s.LastEvent.Since.Seconds(), id, rank)
	}
	gauge(f.live, one(s.State == Live), id, rank)
	gauge(f.suspect, float64(s.SuspectBlocks), id, rank)
	gauge(f.pending, float64(s.Pending), id, rank)
	gauge(f.streamBlocks, float64(s.Blocks.GPU), id, rank, "gpu")
	gauge(f.streamBlocks, float64(s.Blocks.CPU), id, rank, "cpu")
	gauge(f.streamBlocks, float64(s.Blocks.Disk), id, rank, "disk")
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
