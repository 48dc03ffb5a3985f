package main

import (
	"slices"
	"time"
)

// report is all that a run found.
type report struct {
	CPUs    int        `json:"cpus"`
	Speed   []speedRow `json:"speed"`
	Turns   []turnsRow `json:"turns"`
	Ways    []wayRow   `json:"ways"`
	Targets []target   `json:"targets"`
	Seconds float64    `json:"seconds"`
}

// turnsRow is what tokenizing takes in conversations that grow alike, in
// milliseconds at the median: of turns 2 to 10, or of the last.
type turnsRow struct {
	Growth        string  `json:"growth"`
	Size          int     `json:"size_tokens"`
	Turns         string  `json:"turns"`
	Tokens        int     `json:"tokens"`
	NewTokens     int     `json:"new_tokens"`
	HF            float64 `json:"hf_full_ms"`
	BPE           float64 `json:"bpe_full_ms"`
	Render        float64 `json:"render_ms"`
	Tokenize      float64 `json:"tokenize_hash_ms"`
	Total         float64 `json:"total_ms"`
	CacheBytes    int     `json:"cache_bytes_per_conversation"`
	BytesPerToken float64 `json:"cache_bytes_per_token"`
}

func (r *chatsResult) turnsRows() []turnsRow {
	rows := []turnsRow{r.turnsRow("2-10", 2), r.turnsRow("10", turns)}
	return rows
}

// turnsRow sums up the turns from the given one on.
func (r *chatsResult) turnsRow(name string, from int) turnsRow {
	var hf, bpe, render, tokenize, total []time.Duration
	var tokens []int
	for _, w := range r.wholes {
		if w.turn >= from {
			hf, bpe = append(hf, w.hf), append(bpe, w.bpe)
		}
	}
	for _, o := range r.observations {
		if o.turn >= from {
			render, tokenize = append(render, o.own.render), append(tokenize, o.own.tokenize)
			total = append(total, o.own.render+o.own.tokenize)
			tokens = append(tokens, o.tokens)
		}
	}
	row := turnsRow{
		Growth: r.growth.Name, Size: r.size, Turns: name, Tokens: medianInt(tokens), NewTokens: r.growth.Turn,
		HF: milliseconds(median(hf)), BPE: milliseconds(median(bpe)),
		Render: milliseconds(median(render)), Tokenize: milliseconds(median(tokenize)), Total: milliseconds(median(total)),
		CacheBytes: medianInt(r.cacheBytes),
	}
	row.BytesPerToken = float64(row.CacheBytes) / float64(max(1, medianInt(r.lastTokens)))
	return row
}

func medianInt(n []int) int {
	if len(n) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(n))[(len(n)-1)/2]
}

// wayRow compares the replaced way and kvindex's on the same requests, in
// milliseconds; the steps at their medians.
type wayRow struct {
	Growth      string  `json:"growth"`
	Size        int     `json:"size_tokens"`
	Turns       string  `json:"turns"`
	Requests    int     `json:"requests"`
	HTTP        float64 `json:"replaced_http_ms"`
	Decode      float64 `json:"replaced_decode_ms"`
	Hash        float64 `json:"replaced_hash_ms"`
	Redis       float64 `json:"replaced_redis_ms"`
	ReplacedP50 float64 `json:"replaced_p50_ms"`
	ReplacedP99 float64 `json:"replaced_p99_ms"`
	CappedP50   float64 `json:"replaced_capped_p50_ms"`
	Render      float64 `json:"render_ms"`
	Tokenize    float64 `json:"tokenize_hash_ms"`
	Match       float64 `json:"match_ms"`
	OwnP50      float64 `json:"p50_ms"`
	OwnP99      float64 `json:"p99_ms"`
	RatioP50    float64 `json:"ratio_p50"`
	RatioP99    float64 `json:"ratio_p99"`
	RatioCapped float64 `json:"ratio_capped_p50"`
}

func (r *chatsResult) wayRows() []wayRow {
	return []wayRow{r.wayRow("2", 2, 2), r.wayRow("2-10", 2, turns)}
}

func (r *chatsResult) wayRow(name string, from, to int) wayRow {
	var http, decode, hash, redis, theirs, capped, render, tokenize, match, ours []time.Duration
	for _, o := range r.observations {
		if o.turn < from || o.turn > to {
			continue
		}
		http, decode = append(http, o.replaced.http), append(decode, o.replaced.decode)
		hash, redis = append(hash, o.replaced.hash), append(redis, o.replaced.redis)
		theirs, capped = append(theirs, o.replaced.total), append(capped, o.replaced.capped)
		render, tokenize = append(render, o.own.render), append(tokenize, o.own.tokenize)
		match, ours = append(match, o.own.match), append(ours, o.own.total)
	}
	return wayRow{
		Growth: r.growth.Name, Size: r.size, Turns: name, Requests: len(ours),
		HTTP: milliseconds(median(http)), Decode: milliseconds(median(decode)),
		Hash: milliseconds(median(hash)), Redis: milliseconds(median(redis)),
		ReplacedP50: milliseconds(median(theirs)), ReplacedP99: milliseconds(percentile(theirs, 99)),
		CappedP50: milliseconds(median(capped)),
		Render:    milliseconds(median(render)), Tokenize: milliseconds(median(tokenize)), Match: milliseconds(median(match)),
		OwnP50: milliseconds(median(ours)), OwnP99: milliseconds(percentile(ours, 99)),
		RatioP50: ratio(median(theirs), median(ours)), RatioP99: ratio(percentile(theirs, 99), percentile(ours, 99)),
		RatioCapped: ratio(median(capped), median(ours)),
	}
}

// target is what kvindex wants to reach, and whether it did.
type target struct {
	What  string  `json:"what"`
	Want  float64 `json:"want"`
	Unit  string  `json:"unit"`
	Got   float64 `json:"got"`
	Where string  `json:"where"` // the worst of those that the target is about
	Met   bool    `json:"met"`
}

// The targets.
const (
	wantSpeed    = 3.0   // times the library's speed, cold
	wantTokenize = 0.5   // ms, tokenizing and hashing a later turn at 100k tokens
	wantWay      = 100.0 // times as fast as the replaced way, at the median
	largest      = 100_000
)

// judge compares a report with the targets.
func (r *report) judge() {
	add := func(what, unit string, want, got float64, where string, met bool) {
		r.Targets = append(r.Targets, target{what, want, unit, got, where, met})
	}
	if len(r.Speed) > 0 {
		worst := slices.MinFunc(r.Speed, func(a, b speedRow) int { return compare(a.Ratio, b.Ratio) })
		add("cold speed, bpe/hf", "x at least", wantSpeed, worst.Ratio, worst.Tokenizer+" "+worst.Text, worst.Ratio >= wantSpeed)
	}
	for _, t := range r.Turns {
		if t.Size == largest && t.Turns == "2-10" {
			add("tokenize+hash p50, "+t.Growth+" 100k", "ms at most", wantTokenize, t.Tokenize, "turns 2-10", t.Tokenize <= wantTokenize)
		}
	}
	for _, w := range r.Ways {
		add(sizeName(w.Size)+" "+w.Growth+", replaced/kvindex p50", "x at least", wantWay, w.RatioP50, "turns "+w.Turns, w.RatioP50 >= wantWay)
	}
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
