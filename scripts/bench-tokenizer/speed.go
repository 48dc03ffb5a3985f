package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/tokenizer"
	"github.com/kvindex/kvindex/tokenizer/bpe"
	"github.com/kvindex/kvindex/tokenizer/hf"
)

// speedRow is how fast both encoders turn one kind of text into ids.
type speedRow struct {
	Tokenizer string  `json:"tokenizer"`
	Text      string  `json:"text"`
	Bytes     int     `json:"bytes"`
	Tokens    int     `json:"tokens"`
	BPE       float64 `json:"bpe_mb_per_cpu_second"`
	HF        float64 `json:"hf_mb_per_cpu_second"`
	Ratio     float64 `json:"ratio"`
	Equal     bool    `json:"equal_ids"`
}

// ownRuns is of how many cold runs of package bpe the median is taken. They
// take some tens of milliseconds each; the library's one run takes several
// times that and averages over the machine's noise by itself.
const ownRuns = 3

// measureSpeed measures every tokenizer in dir that package bpe knows, on every
// text. Cold means that an encoder has tokenized nothing before: each run has
// one that was made for it, of package bpe and of the library.
func measureSpeed(ctx context.Context, dir string, names []string, texts []sample, p *progress) ([]speedRow, error) {
	var rows []speedRow
	for i, name := range names {
		f, err := readModel(dir, name)
		if err != nil {
			return nil, err
		}
		if _, err := bpe.New(f.tokenizer); errors.As(err, new(*bpe.UnsupportedError)) {
			p.say("speed: %s is left out: package bpe does not know it", name)
			continue
		}
		p.say("speed: %s, tokenizer %d of %d", name, i+1, len(names))
		for _, s := range texts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.tick("speed: %s, %s", name, s.kind)
			row, err := coldRun(f, s)
			if err != nil {
				return nil, fmt.Errorf("cannot tokenize %s with %s: %w", s.kind, name, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// coldRun measures one text.
func coldRun(f *modelFiles, s sample) (speedRow, error) {
	row := speedRow{Tokenizer: f.name, Text: s.kind, Bytes: len(s.text)}
	fresh, library, err := coldEncoders(f)
	if err != nil {
		return row, err
	}
	defer library.Close()
	runtime.GC()
	var own []time.Duration
	var ids []uint32
	for _, t := range fresh {
		from := cpuTime()
		tokens, err := t.Encode(s.text, false)
		own = append(own, cpuTime()-from)
		if err != nil {
			return row, err
		}
		ids = tokens.AppendIDs(nil)
	}
	from := cpuTime()
	theirs, err := library.Append(nil, s.text)
	took := cpuTime() - from
	if err != nil {
		return row, err
	}
	row.Tokens = len(theirs)
	row.BPE, row.HF = megabytesPerSecond(len(s.text), median(own)), megabytesPerSecond(len(s.text), took)
	row.Ratio = ratio(took, median(own))
	row.Equal = slices.Equal(ids, theirs)
	return row, nil
}

// coldEncoders makes encoders that have tokenized nothing: several of package
// bpe, one of the library.
func coldEncoders(f *modelFiles) (fresh [ownRuns]*tokenizer.Tokenizer, library *hf.Encoder, err error) {
	var ownErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range fresh {
			if fresh[i], ownErr = f.newOwn(nil); ownErr != nil {
				return
			}
		}
	})
	library, err = f.newLibrary()
	wg.Wait()
	if err == nil && ownErr != nil {
		library.Close()
	}
	return fresh, library, errors.Join(err, ownErr)
}

// cpuTime is the processor time that this process has used, on all cores: what
// runs beside it on a busy machine does not count.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no errors but for wrong arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
