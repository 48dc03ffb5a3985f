package main

import (
	"fmt"
	"io"
	"time"
)

// progress says on standard error what a long run is at. It belongs to one
// goroutine.
type progress struct {
	w     io.Writer
	begin time.Time
	last  time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, begin: time.Now()} }

func (p *progress) say(format string, args ...any) {
	p.last = time.Now()
	fmt.Fprintf(p.w, "bench-tokenizer: %3.0f s: %s\n", time.Since(p.begin).Seconds(), fmt.Sprintf(format, args...))
}

// tick is say, at most every two seconds.
func (p *progress) tick(format string, args ...any) {
	if time.Since(p.last) >= 2*time.Second {
		p.say(format, args...)
	}
}
