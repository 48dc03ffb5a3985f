package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// settle waits until every replica has read and applied all that was published.
func settle(ctx context.Context, f *fleet, replicas []*replica) error {
	for _, r := range replicas {
		err := r.until(ctx, 2*time.Minute, func() error {
			for _, e := range f.engines {
				if err := r.upTo(e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the load is over, but a replica does not catch up: %w", err)
		}
	}
	return nil
}

// upTo reports what a replica lacks of an engine.
func (r *replica) upTo(e *engine) error {
	var in struct {
		State   string `json:"state"`
		Reason  string `json:"reason"`
		Streams []struct {
			LastSeq *uint64 `json:"last_seq"`
		} `json:"streams"`
	}
	b, err := r.ask(http.MethodGet, "/v1/instances/"+e.id, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	next := e.Rank(0).Stream().Seq()
	if in.State != "live" || len(in.Streams) != 1 || in.Streams[0].LastSeq == nil || *in.Streams[0].LastSeq+1 != next {
		return fmt.Errorf("%s is %s %s, and not yet at batch %d", e.id, in.State, in.Reason, next)
	}
	return nil
}

// dumps are what was compared in the end.
type dumps struct {
	Bytes   []int `json:"bytes"`
	Equal   bool  `json:"equal"`
	Held    int   `json:"pairs_of_a_block_and_an_engine"` // that the engines hold
	Missing int   `json:"missing"`                        // of these, from the first dump
	Extra   int   `json:"extra"`                          // in it, and on no engine
}

// compareDumps compares what replicas hold with each other, and with the engines.
func compareDumps(f *fleet, replicas []*replica) (dumps, error) {
	d := dumps{Equal: true}
	var first [][]byte
	for i, r := range replicas {
		text, err := r.ask(http.MethodGet, "/v1/dump", nil)
		if err != nil {
			return d, fmt.Errorf("cannot dump a replica: %w", err)
		}
		d.Bytes = append(d.Bytes, len(text))
		lines := slices.SortedFunc(bytes.Lines(text), bytes.Compare) // they come in no order
		if i == 0 {
			first = lines
			continue
		}
		d.Equal = d.Equal && slices.EqualFunc(first, lines, bytes.Equal)
	}
	return d, d.againstEngines(f, first)
}

// held names a block of an engine.
type held struct {
	instance string
	tier     string
	seq      uint64
}

func (d *dumps) againstEngines(f *fleet, lines [][]byte) error {
	have := map[held]int{}
	for _, line := range lines {
		var b struct {
			Seq     uint64 `json:"seq_hash,string"`
			Holders []struct {
				Instance string `json:"instance"`
				Tier     string `json:"tier"`
				Copies   int    `json:"copies"`
			} `json:"holders"`
		}
		if err := json.Unmarshal(line, &b); err != nil {
			return fmt.Errorf("cannot read a line of a dump: %w", err)
		}
		for _, h := range b.Holders {
			have[held{h.Instance, h.Tier, b.Seq}] = h.Copies
		}
	}
	h := indexer.NewHasher(indexer.DefaultSeed)
	tiers := map[indexer.Tier]string{indexer.GPU: "gpu", indexer.CPU: "cpu", indexer.Disk: "disk"}
	for _, e := range f.engines {
		for key, state := range e.Truth(h) {
			d.Held++
			k := held{e.id, tiers[key.Tier], uint64(key.Seq)}
			if have[k] != state.Copies {
				d.Missing++
			}
			delete(have, k)
		}
	}
	d.Extra = len(have)
	return nil
}

// right reports whether there is nothing to complain about.
func (d *dumps) right() bool { return d.Equal && d.Missing == 0 && d.Extra == 0 && d.Held > 0 }
