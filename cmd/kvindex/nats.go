package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// connect is how NATS is reached.
func (c natsConfig) connect() natssource.ConnectOptions {
	return natssource.ConnectOptions{
		URL: c.URL, Name: "kvindex serve", CredentialsFile: c.CredentialsFile, TokenFile: c.TokenFile,
		CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
	}
}

// natsReader follows what comes over NATS. The zero value is for a
// configuration without it: every method does nothing.
type natsReader struct {
	source *natssource.Source
	models []string // nats.models, sorted
	log    *slog.Logger
	wg     *sync.WaitGroup
}

func newNATSReader(c *config, log *slog.Logger) (natsReader, error) {
	if c.NATS.URL == "" {
		return natsReader{}, nil
	}
	sizes := map[string]int{}
	for _, m := range c.Models {
		sizes[m.Name] = m.BlockSize
	}
	source, err := natssource.New(natssource.Options{
		Connect: c.NATS.connect(), Stream: c.NATS.Stream, Models: c.NATS.Models, BlockSizes: sizes,
		MaxReplays: c.Events.MaxReplays, MaxStreams: c.NATS.MaxStreams, Logger: log,
	})
	return natsReader{source, slices.Sorted(slices.Values(c.NATS.Models)), log, &sync.WaitGroup{}}, err
}

// or follows streams of NATS, and leaves the others to zmq.
func (n natsReader) or(zmq events.Source) events.Source {
	return func(ctx context.Context, s *events.Session) error {
		switch {
		case s.Stream().Transport() != events.TransportNATS:
			return zmq(ctx, s)
		case n.source == nil:
			return fmt.Errorf("cannot follow %s: nats.url is not configured", s.Stream().Endpoint)
		}
		return n.source.Follow(ctx, s)
	}
}

// natsMark is what a snapshot tells of NATS: from where on its reader has to read
// the log.
type natsMark struct {
	natssource.Position
	Models []string `json:"models,omitempty"` // nats.models of its writer: others were not read
}

// mark is where the reader is, nil if there is nothing to tell. It is asked for
// before the index is copied, so that it is never beyond the copy: what is read
// twice does no harm.
func (n natsReader) mark() *natsMark {
	if n.source == nil {
		return nil
	}
	at := n.source.Position()
	if at.Created.IsZero() {
		return nil
	}
	return &natsMark{at, n.models}
}

// resume goes on after a mark. With other models than its writer's, what these
// have in the log is not known, and all of it is read.
func (n natsReader) resume(m *natsMark) {
	if n.source == nil || m == nil {
		return
	}
	if !slices.Equal(m.Models, n.models) {
		n.log.Info("the log on NATS is read from its beginning: the snapshot was taken with other nats.models", "then", m.Models, "now", n.models)
		return
	}
	n.source.StartAt(m.Position)
}

// start reads until ctx is cancelled; wait waits for that. The instances of a
// snapshot that came over NATS are followed again at once: what is known of them
// answers from the first moment on.
func (n natsReader) start(ctx context.Context, fleet *events.Fleet, restored []events.InstanceState) {
	if n.source == nil {
		return
	}
	for _, in := range restored {
		for _, st := range in.Streams {
			n.source.Expect(fleet, st.Endpoint)
		}
	}
	n.wg.Go(func() {
		if err := n.source.Run(ctx, fleet); err != nil && ctx.Err() == nil {
			n.log.Error("nothing comes over NATS any more", "error", err)
		}
	})
}

func (n natsReader) wait() {
	if n.source != nil {
		n.wg.Wait()
	}
}

func (n natsReader) close() {
	if n.source != nil {
		n.source.Close()
	}
}

// waiting says what /readyz awaits.
func (n natsReader) waiting() []string {
	if n.source == nil {
		return nil
	}
	r := n.source.Report()
	switch {
	case r.CaughtUp:
		return nil
	case r.Trouble != "":
		return []string{"nats: " + r.Trouble}
	case r.Behind == 0:
		return []string{"nats: the relays' answers"}
	}
	return []string{fmt.Sprintf("nats: %d messages to read", r.Behind)}
}

// collectors are the metrics of a service that reads NATS.
func (n natsReader) collectors() []prometheus.Collector {
	if n.source == nil {
		return nil
	}
	return []prometheus.Collector{newNATSCollector(n.source)}
}

// natsCollector shows a source's report as metrics.
type natsCollector struct {
	source                        *natssource.Source
	up, behind, position, streams *prometheus.Desc
	refused, messages, surprises  *prometheus.Desc
}

func newNATSCollector(s *natssource.Source) *natsCollector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_nats_"+name, help, labels, nil)
	}
	return &natsCollector{
		source:    s,
		up:        d("up", "1 if NATS is connected and its stream is being read."),
		behind:    d("pending_messages", "Messages in the NATS stream that have not been read; -1: unknown."),
		position:  d("position", "Number in the NATS stream of the last message that was applied."),
		streams:   d("streams", "Streams of engines that come over NATS."),
		refused:   d("refused_streams", "Streams over NATS that are not followed: the instance is followed otherwise."),
		messages:  d("messages_total", "Messages read from NATS, by result: taken, bad.", "result"),
		surprises: d("surprises_total", "Times the NATS stream was not what it was: recreated, shortened, purged.", "what"),
	}
}

// Describe implements prometheus.Collector.
func (c *natsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.behind, c.position, c.streams, c.refused, c.messages, c.surprises} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *natsCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.source.Report()
	up := 0.0
	if r.Up && r.Trouble == "" {
		up = 1
	}
	for d, v := range map[*prometheus.Desc]float64{
		c.up: up, c.behind: float64(r.Behind), c.position: float64(r.Position.Seq),
		c.streams: float64(r.Streams), c.refused: float64(len(r.Refused)),
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	ch <- prometheus.MustNewConstMetric(c.messages, prometheus.CounterValue, float64(r.Messages-r.Bad), "taken")
	ch <- prometheus.MustNewConstMetric(c.messages, prometheus.CounterValue, float64(r.Bad), "bad")
	for what, v := range map[string]uint64{"recreated": r.Recreated, "shortened": r.Shortened, "purged": r.Purged} {
		ch <- prometheus.MustNewConstMetric(c.surprises, prometheus.CounterValue, float64(v), what)
	}
}
