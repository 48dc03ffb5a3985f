package main

import (
	"slices"
	"strings"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
)

// explain finds the reason for a difference in the recording itself: in what
// the engine published next, or in what else it was computing.
func (c *comparison) explain(i int, a enginesim.Ask, row *comparedRow) (class, why string) {
	c.learn()
	if strings.HasPrefix(row.Reason, events.CauseUnchained) {
		return classUnchained, "the engine's hashes name no prefix (the answer says so)"
	}
	if row.Predicted[a.Instance] < a.CachedTokens {
		switch {
		case a.Salt != "" && !c.saltNamed:
			return classSalt, "the engine's events do not name salts: vLLM before 0.17"
		case requestOf(a).N > 1:
			return classInFlight, "the request asks for several answers, which share its prefix"
		case c.overlapped(a):
			return classInFlight, "the prefix was just being computed for another request"
		}
		return classUnknown, "kvindex answers less than the engine had"
	}
	switch next := c.next(i, a.Pod); {
	case requestOf(a).Logprobs != nil:
		return classNoCache, "a request for prompt_logprobs reads no cache"
	case next == classRestarted || c.quietSinceRestart(i, a.Pod):
		return classRestarted, "the engine had restarted, and had not published anything since"
	case next == classCleared:
		return classCleared, "the engine had cleared its cache, and says so with its next batch only"
	case c.namespaces:
		return classNamespace, "the same prompt was cached under an extra_key that its events do not name"
	case c.hybrid:
		return classHybrid, "the full-attention blocks are there, but not all of a sliding window"
	}
	return classUnknown, "kvindex answers more than the engine had"
}

// learn looks through the recording, once, for what explains differences.
func (c *comparison) learn() {
	if c.learnt {
		return
	}
	c.learnt = true
	dec := events.NewDecoder(events.Limits{})
	for _, s := range c.rec.Steps {
		switch s := s.(type) {
		case enginesim.Ask:
			c.namespaces = c.namespaces || s.ExtraKey != ""
		case enginesim.Publish:
			b, err := dec.Decode(s.Payload)
			if err != nil {
				continue
			}
			for i := range b.Events {
				e := &b.Events[i]
				c.saltNamed = c.saltNamed || e.HasExtra || e.Salt != ""
				c.hybrid = c.hybrid || e.SpecKind != "" && e.SpecKind != "full_attention"
			}
		}
	}
}

// next says what the pod did right after step i: restart, clear, or neither.
func (c *comparison) next(i int, pod string) string {
	for _, s := range c.rec.Steps[i+1:] {
		switch s := s.(type) {
		case enginesim.Restart:
			if s.Pod == pod {
				return classRestarted
			}
		case enginesim.Publish:
			if s.Pod != pod {
				continue
			}
			b, err := events.NewDecoder(events.Limits{}).Decode(s.Payload)
			if err != nil {
				return ""
			}
			for _, e := range b.Events {
				if e.Kind == events.AllBlocksCleared {
					return classCleared
				}
			}
			return ""
		}
	}
	return ""
}

// quietSinceRestart reports whether the pod had restarted and published
// nothing since when step i came.
func (c *comparison) quietSinceRestart(i int, pod string) bool {
	for _, s := range slices.Backward(c.rec.Steps[:i]) {
		switch s := s.(type) {
		case enginesim.Restart:
			if s.Pod == pod {
				return true
			}
		case enginesim.Publish:
			if s.Pod == pod {
				return false
			}
		}
	}
	return false
}

// overlapped reports whether the pod was computing another prompt with the
// same beginning when a was sent.
func (c *comparison) overlapped(a enginesim.Ask) bool {
	for _, s := range c.rec.Steps {
		o, ok := s.(enginesim.Ask)
		if !ok || o.Pod != a.Pod || o.ID == a.ID || o.At > a.Finished || o.Finished < a.At {
			continue
		}
		prompts := append([][]uint32{o.PromptTokens}, o.Prompts...)
		for _, p := range prompts {
			if commonPrefix(p, a.PromptTokens) >= a.CachedTokens {
				return true
			}
		}
	}
	return false
}

func commonPrefix(a, b []uint32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
