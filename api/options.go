package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/indexer"
)

// Options is what a Server is made of. Index and Fleet are required; every
// other zero value has a meaning of its own.
type Options struct {
	Index *indexer.Index
	Fleet Fleet

	// Tokenizers turns texts and chats into token ids. nil: requests with
	// them are answered "unknown".
	Tokenizers Tokenizers

	// Logger receives what the operator must know; nil discards it. Requests
	// are logged at debug level only, without bodies.
	Logger *slog.Logger

	// Version is what /version and kvindex_build_info say.
	Version string

	// Limits bound what one request and all requests together may cost.
	Limits Limits

	// TokenFile holds the bearer token that requests must carry. "" lets
	// everyone in who can connect. The file is read again when it changes.
	TokenFile string

	// AdminTokenFile holds the token of the admin routes (clear, resync,
	// dump, profiles); it opens all others too. "" lets only loopback peers use them.
	AdminTokenFile string

	// Ready reports whether the index is warm enough to answer, and what is
	// still awaited. nil is always ready.
	Ready func() (ok bool, awaited []string)

	// Starting says why nothing is known yet, "" once that is over. It stands in
	// the answers to queries of which nothing is known; nil: there is never a
	// reason.
	Starting func() string

	// Registry collects the metrics and is served at /metrics. nil makes one
	// with the Go runtime's and the process's collectors in it.
	Registry *prometheus.Registry

	// Collectors are collected too.
	Collectors []prometheus.Collector

	// Flat answers queries with "match_mode": "flat"; nil: none can be. With
	// FlatFallback it also answers where no stream of the model is live.
	Flat         Flat
	FlatFallback bool

	// Snapshot answers GET /v1/snapshot, for other replicas; nil: not found.
	Snapshot http.Handler
}

// Limits bound requests. The zero value of a field means its default.
type Limits struct {
	BodyBytes         int64 // size of a request body (8 MiB)
	Tokens            int   // tokens of one prompt (2,097,152)
	Blocks            int   // hashes of one query (262,144)
	Candidates        int   // candidates of one query (4,096)
	Batch             int   // queries of one batch (256)
	ConcurrentQueries int   // queries being answered at once (256)
	ExplainBlocks     int   // blocks that one explanation lists (4,096)
}

// withDefaults returns l with every zero replaced.
func (l Limits) withDefaults() Limits {
	or := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = 8 << 20
	}
	or(&l.Tokens, 2<<20)
	or(&l.Blocks, 256<<10)
	or(&l.Candidates, 4096)
	or(&l.Batch, 256)
	or(&l.ConcurrentQueries, 256)
	or(&l.ExplainBlocks, 4096)
	return l
}

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Index == nil {
		errs = append(errs, errors.New("the index is missing"))
	}
	if o.Fleet == nil {
		errs = append(errs, errors.New("the fleet is missing"))
	}
	l := o.Limits
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"body bytes", l.BodyBytes}, {"tokens", int64(l.Tokens)}, {"blocks", int64(l.Blocks)},
		{"candidates", int64(l.Candidates)}, {"batch", int64(l.Batch)},
		{"concurrent queries", int64(l.ConcurrentQueries)}, {"explained blocks", int64(l.ExplainBlocks)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("the limit of %s is negative: %d", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}
