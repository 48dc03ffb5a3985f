package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Bounds of an engine's /metrics.
const (
	maxMetrics     = 8 << 20
	maxMetricsLine = 64 << 10
)

// The gauges that are read of vLLM's /metrics (vllm/v1/metrics/loggers.py).
const (
	metricWaiting  = "vllm:num_requests_waiting"
	metricRunning  = "vllm:num_requests_running"
	metricUsage    = "vllm:kv_cache_usage_perc"
	metricUsageOld = "vllm:gpu_cache_usage_perc" // its older name; some versions have both
)

// errNoMetrics is an answer that has no vllm:num_requests_waiting.
var errNoMetrics = errors.New("there is no " + metricWaiting)

// Load is what an engine had to do when it was last looked at, over all its
// data-parallel ranks.
type Load struct {
	Waiting float64 // requests that are not scheduled yet
	Running float64 // requests in the running batches
	// CacheUsage is the share of KV cache blocks in use, from 0 to 1, of the
	// rank with most.
	CacheUsage float64
}

// parseMetrics reads a load from Prometheus's text format, version 0.0.4.
func parseMetrics(r io.Reader) (Load, error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxMetricsLine)
	var (
		load  Load
		known bool
	)
	for lines.Scan() {
		name, value, ok := sample(lines.Text())
		if !ok {
			continue
		}
		switch name {
		case metricWaiting:
			load.Waiting += value
			known = true
		case metricRunning:
			load.Running += value
		case metricUsage, metricUsageOld:
			load.CacheUsage = max(load.CacheUsage, value)
		}
	}
	switch {
	case lines.Err() != nil:
		return Load{}, fmt.Errorf("cannot read metrics: %w", lines.Err())
	case limited.N == 0:
		return Load{}, fmt.Errorf("cannot read metrics: they have more than %d bytes", maxMetrics)
	case !known:
		return Load{}, errNoMetrics
	}
	return load, nil
}

// sample reads a line of the metrics above: NAME{LABELS} VALUE [TIME]. Others,
// and values that are no amounts, are not ok.
func sample(line string) (name string, value float64, ok bool) {
	end := strings.IndexAny(line, "{ \t")
	if end < 0 {
		return "", 0, false
	}
	name, rest := line[:end], line[end:]
	switch name {
	case metricWaiting, metricRunning, metricUsage, metricUsageOld:
	default:
		return "", 0, false
	}
	if rest[0] == '{' {
		if rest, ok = afterLabels(rest); !ok {
			return "", 0, false
		}
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return name, value, err == nil && value >= 0 && !math.IsInf(value, 1)
}

// afterLabels is what follows the brace that ends s's labels; their values may
// have braces too.
func afterLabels(s string) (string, bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == '}' && !quoted:
			return s[i+1:], true
		}
	}
	return "", false
}
