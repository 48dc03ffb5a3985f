package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/tokenizer"
)

// tokenizerCollector reads the counters of tokenizers when they are scraped.
type tokenizerCollector struct {
	s *Server

	state, requests, unknown, tokens, samples, mismatches, witnessed *prometheus.Desc
	bytes, cacheBytes, cacheNodes, evicted                           *prometheus.Desc
}

func newTokenizerCollector(s *Server) *tokenizerCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kvindex_tokenizer_"+name, help, labels, nil)
	}
	return &tokenizerCollector{
		s:          s,
		state:      desc("state", "1 for the state that a model's tokenizer is in.", "model", "state"),
		requests:   desc("requests_total", "Texts and chats whose tokens were told, by where these came from.", "model", "source"),
		unknown:    desc("unknown_total", "Texts and chats whose tokens could not be told.", "model"),
		tokens:     desc("tokens_total", "Tokens of texts and chats, by whether the prefix cache had them.", "model", "cache"),
		samples:    desc("samples_total", "Requests that an instance of the model was asked about too, by result.", "model", "result"),
		mismatches: desc("mismatch_total", "Times that a tokenizer gave other ids than its library or an instance, by stage.", "model", "stage"),
		witnessed:  desc("witnessed_total", "Sampled prompts that nobody held whole when they were asked for, by whether an instance stored them within half a minute.", "model", "result"),
		bytes:      desc("bytes", "Memory of a model's tokenizer, beside the cache.", "model"),
		cacheBytes: desc("cache_bytes", "Memory of the prefix cache."),
		cacheNodes: desc("cache_nodes", "Stretches of text that the prefix cache remembers."),
		evicted:    desc("cache_evictions_total", "Stretches of text that the prefix cache has dropped for lack of room."),
	}
}

// Describe sends what Collect may send.
func (c *tokenizerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.state, c.requests, c.unknown, c.tokens, c.samples, c.mismatches, c.witnessed, c.bytes, c.cacheBytes, c.cacheNodes, c.evicted,
	} {
		ch <- d
	}
}

// Collect reads the tokenizers.
func (c *tokenizerCollector) Collect(ch chan<- prometheus.Metric) {
	t := c.s.tokenizers
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	cache := t.CacheStats()
	gauge(c.cacheBytes, float64(cache.Bytes))
	gauge(c.cacheNodes, float64(cache.Nodes))
	counter(c.evicted, cache.EvictedNodes)
	for _, model := range t.Names() {
		st, ok := t.Status(model)
		if !ok {
			continue
		}
		for _, s := range tokenizer.States() {
			gauge(c.state, one(st.State == s), model, string(s))
		}
		gauge(c.bytes, float64(st.Bytes), model)
		for source, n := range st.Requests {
			counter(c.requests, n, model, string(source))
		}
		counter(c.unknown, st.Unknown, model)
		counter(c.tokens, st.Cached, model, "hit")
		counter(c.tokens, st.Computed, model, "miss")
		for result, n := range st.Samples {
			counter(c.samples, n, model, result)
		}
		for stage, n := range st.Mismatches {
			counter(c.mismatches, n, model, string(stage))
		}
		w := c.s.witness.of(model, time.Now())
		counter(c.witnessed, w.Stored, model, "stored")
		counter(c.witnessed, w.NotStored, model, "not_stored")
	}
}
