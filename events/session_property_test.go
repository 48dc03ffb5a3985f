package events

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// simPool is an engine whose cache is the truth: it publishes what it does to it.
type simPool struct {
	b       *bench // encodes batches
	copies  map[int]map[int]int
	batches map[uint64][]byte // what a replay can bring
	next    uint64
}

const simBlocks = 6

func newSimPool(b *bench) *simPool {
	return &simPool{b: b, copies: map[int]map[int]int{1: {}, 2: {}, 3: {}}, batches: map[uint64][]byte{}}
}

// serve caches the first n blocks of a prompt: what is missing is computed, and
// all after it.
func (p *simPool) serve(prompt, n int) []any {
	have := p.copies[prompt]
	hit := 0
	for hit < n && have[hit] > 0 {
		hit++
	}
	if hit == n {
		return nil
	}
	for i := hit; i < n; i++ {
		have[i]++
	}
	return []any{stored(prompt, hit, n-hit)}
}

func (p *simPool) evict(prompt, block int) []any {
	if p.copies[prompt][block] == 0 {
		return nil
	}
	p.copies[prompt][block]--
	return []any{removed(prompt, block)}
}

func (p *simPool) leading(prompt int) int {
	n := 0
	for n < simBlocks && p.copies[prompt][n] > 0 {
		n++
	}
	return n
}

// TestSessionAgainstPool: whatever is lost, garbled, cut off or restarted, when it
// is quiet again nothing is called certain that the engine does not have, a live
// stream has exactly what the engine has, and what is held is marked if it may be
// more.
func TestSessionAgainstPool(t *testing.T) {
	seen := map[State]int{}
	suspects := 0
	for _, replay := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			b := newBench(t, func(o *SessionOptions) {
				o.SuspectTTL, o.Grace = 8*time.Minute, time.Minute
				if !replay {
					o.Stream.ReplayEndpoint = ""
				}
			})
			p := newSimPool(b)
			connected := true
			b.s.Connected()
			var snap *saved
			var later time.Duration // the clock runs ahead by this
			publish := func(how string, events []any) {
				if len(events) == 0 {
					return
				}
				payload := b.batch(events...)
				if how == "poison" {
					payload = []byte{0xc1, byte(p.next)}
				}
				if how != "unsent" {
					p.batches[p.next] = payload
				}
				if connected && how != "unsent" && how != "dropped" {
					b.live(p.next, payload)
				}
				p.next++
			}
			quiesce := func() {
				if !connected {
					connected = true
					b.s.Connected()
				}
				b.giveUp(p.batches)
				for prompt := 8; prompt < 10; prompt++ { // what was dropped at the end shows with the next batch
					publish("", []any{stored(prompt, 0, 1), removed(prompt, 0)})
					b.giveUp(p.batches)
				}
				b.s.Settle()
				b.giveUp(p.batches)
			}
			hows := rapid.SampledFrom([]string{"", "", "", "", "dropped", "unsent", "poison"})
			prompt, block := rapid.IntRange(1, 3), rapid.IntRange(0, simBlocks-1)
			serve := func(t *rapid.T) {
				publish(hows.Draw(t, "how"), p.serve(prompt.Draw(t, "prompt"), 1+block.Draw(t, "block")))
			}
			evict := func(t *rapid.T) {
				publish(hows.Draw(t, "how"), p.evict(prompt.Draw(t, "prompt"), block.Draw(t, "block")))
			}
			t.Repeat(map[string]func(*rapid.T){
				"serve": serve, "serve 2": serve, "evict": evict, "evict 2": evict,
				"disconnect": func(*rapid.T) {
					if connected {
						connected = false
						b.s.Disconnected()
					}
				},
				"connect": func(*rapid.T) {
					if !connected {
						connected = true
						b.s.Connected()
					}
				},
				"restart": func(*rapid.T) {
					if connected {
						b.s.Disconnected()
					}
					*p = *newSimPool(b)
					connected = true
					b.s.Connected()
				},
				"replay": func(*rapid.T) {
					if connected {
						b.giveUp(p.batches)
					}
				},
				"save": func(*rapid.T) { snap = b.save() },
				"crash": func(*rapid.T) {
					if snap != nil {
						ts := b.ts
						b = b.restored(snap, nil)
						b.ts, p.b, connected = ts, b, false
					}
				},
				"pass": func(t *rapid.T) {
					later += rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Minute, 10 * time.Minute}).Draw(t, "pass")
					b.s.Tick(time.Now().Add(later))
				},
				"clear": func(t *rapid.T) {
					p.copies = map[int]map[int]int{1: {}, 2: {}, 3: {}}
					publish(hows.Draw(t, "how"), []any{cleared()})
				},
				"check": func(t *rapid.T) {
					quiesce()
					h := b.s.Health()
					seen[h.State]++
					for prompt := 1; prompt <= 3; prompt++ {
						has, matched, sure := p.leading(prompt), b.matched(prompt, simBlocks), b.sure(prompt)
						if sure > has {
							t.Fatalf("%s (%s): %d blocks of prompt %d are certain, the engine has %d", h.State, h.Reason, sure, prompt, has)
						}
						if h.State == Live && (matched != has || sure != has) {
							t.Fatalf("live, and %d blocks of prompt %d match, %d of them certain; the engine has %d", matched, prompt, sure, has)
						}
						if matched > has && b.s.Status().Suspect == 0 {
							t.Fatalf("%d blocks of prompt %d match, the engine has %d, and none is suspect", matched, prompt, has)
						}
						if matched > sure {
							suspects++
						}
					}
				},
			})
		})
	}
	if seen[Live] == 0 || seen[Degraded] == 0 || suspects == 0 {
		t.Errorf("%v, %d answers with suspects: too little was tried", seen, suspects)
	}
}
