package main

import (
	"slices"
	"time"
)

// percentile is the nearest-rank percentile of times: the smallest of them
// that at least p percent are not above. 0 of none.
func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(p / 100 * float64(len(sorted)))
	if float64(rank) < p/100*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func median(times []time.Duration) time.Duration { return percentile(times, 50) }

// ratio is how many times as long a took as b; 0 if b took nothing.
func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// megabytesPerSecond of n bytes in a time.
func megabytesPerSecond(n int, took time.Duration) float64 {
	if took == 0 {
		return 0
	}
	return float64(n) / 1e6 / took.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
