package indexer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
)

// counting returns the tokens from, from+step, ...
func counting(from, step uint32, n int) []uint32 {
	ts := make([]uint32, n)
	for i := range ts {
		ts[i] = from + uint32(i)*step
	}
	return ts
}

// TestHashVectors compares with values computed by xxHash's own C library,
// through its Python binding.
func TestHashVectors(t *testing.T) {
	f := func(seed uint64, locals, seqs, scoped []uint64, scope, tenant, full, large, extra, extra64, highest uint64) {
		t.Helper()
		h := NewHasher(seed)
		if h.Seed() != seed {
			t.Errorf("Seed() = %d, want %d", h.Seed(), seed)
		}
		sk := h.Scope(Scope{LoRA: "sql", Salt: "pepper"})
		want(t, "scope", uint64(sk), scope)
		want(t, "tenant", uint64(h.Scope(Scope{Tenant: "acme"})), tenant)
		var s, ss SeqHash
		for i := range locals {
			l := h.Local(counting(uint32(16*i), 1, 16), nil)
			want(t, "local", uint64(l), locals[i])
			if i == 0 {
				s, ss = h.Root(0, l), h.Root(sk, l)
			} else {
				s, ss = h.Next(s, l), h.Next(ss, l)
			}
			want(t, "sequence", uint64(s), seqs[i])
			want(t, "scoped sequence", uint64(ss), scoped[i])
		}
		want(t, "64 tokens", uint64(h.Local(counting(0, 1, 64), nil)), full)
		want(t, "784 tokens", uint64(h.Local(counting(0, 7, 784), nil)), large)
		want(t, "extra keys", uint64(h.Local(counting(0, 1, 16), []byte("img-1"))), extra)
		want(t, "64 tokens and extra keys", uint64(h.Local(counting(0, 1, 64), []byte("img-1"))), extra64)
		want(t, "largest token", uint64(h.Local(slices.Repeat([]uint32{1<<32 - 1}, 4), nil)), highest)
	}
	f(DefaultSeed,
		[]uint64{15310707395893867146, 15292316782987903195, 5532946206955930018},
		[]uint64{15310707395893867146, 13769157705258532664, 11879827756109914528},
		[]uint64{10627227302586539640, 9896867884039608992, 11447940044069550093},
		10483435614907679320, 3946822203563219595,
		3480597578098033343, 3528413004377763697, 4361616039609511686, 9472411947863889375, 12410542959481710713)
	f(99,
		[]uint64{5887444184831506172, 16670848600625902497, 4839347862652364614},
		[]uint64{5887444184831506172, 4476456720091830184, 3801906275910344162},
		[]uint64{12753578270580495849, 10007564597655131379, 7105433477346852672},
		16926149625577966488, 6752260890556312525,
		13688608735671142821, 9912859456581905702, 6988530306347598614, 16210340295095553874, 9120038522144874514)
}

// TestLocalBothPaths: hashing the tokens in place and through a buffer are one.
func TestLocalBothPaths(t *testing.T) {
	h := NewHasher(DefaultSeed)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		tokens := make([]uint32, n)
		for i := range tokens {
			tokens[i] = rng.Uint32()
		}
		want(t, "hash", h.Local(tokens, nil), LocalHash(xxh3.HashSeed(appendTokens(nil, tokens), DefaultSeed)))
	}
}

func TestScope(t *testing.T) {
	h := NewHasher(DefaultSeed)
	want(t, "zero scope", h.Scope(Scope{}), 0)
	want(t, "default tenant", h.Scope(Scope{Tenant: DefaultTenant}), 0)
	want(t, "default tenant with LoRA", h.Scope(Scope{Tenant: DefaultTenant, LoRA: "x"}), h.Scope(Scope{LoRA: "x"}))
	seen := map[ScopeKey]Scope{}
	for _, s := range []Scope{{}, {"a", "", ""}, {"", "a", ""}, {"", "", "a"}, {"a", "b", ""}, {"ab", "", ""}, {"", "ab", ""}, {"", "a", "b"}, {"a", "", "b"}} {
		k := h.Scope(s)
		if o, ok := seen[k]; ok {
			t.Errorf("%+v and %+v have one key", s, o)
		}
		seen[k] = s
	}
}

func TestHashingDoesNotAllocate(t *testing.T) {
	h := NewHasher(DefaultSeed)
	tokens := counting(0, 1, 1024)
	extra := make([]byte, 200)
	var l LocalHash
	var s SeqHash
	f := func(what string, do func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	f("16 tokens", func() { l = h.Local(tokens[:16], nil) })
	f("64 tokens", func() { l = h.Local(tokens[:64], nil) })
	f("64 tokens with extra keys", func() { l = h.Local(tokens[:64], extra) })
	f("1024 tokens", func() { l = h.Local(tokens, nil) })
	f("chain", func() { s = h.Next(h.Root(5, l), l) })
	_ = s
}

func TestTierNames(t *testing.T) {
	for tier, name := range map[Tier]string{GPU: "gpu", CPU: "cpu", Disk: "disk", NumTiers: "unknown"} {
		want(t, "name", tier.String(), name)
	}
}

func BenchmarkLocal16(b *testing.B) {
	h := NewHasher(DefaultSeed)
	tokens := counting(0, 1, 16)
	var s SeqHash
	for b.Loop() {
		s = h.Next(s, h.Local(tokens, nil))
	}
	_ = s
}
