package bpe

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// demo returns the encoder of the demo model.
func demo(t testing.TB) *Encoder {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "demo-model", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(raw)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// longWord makes a word that tries where parts meet: repetitions with and
// without errors in them, long tokens, noise.
func longWord(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		unit := make([]byte, 1+r.IntN(7))
		for i := range unit {
			unit[i] = "abcdefgh etaoin\xe4\xb8\xad"[r.IntN(18)]
			if r.IntN(20) == 0 {
				unit[i] = byte(r.IntN(256))
			}
		}
		b.WriteString(strings.Repeat(string(unit), 1+r.IntN(1+r.IntN(200))))
		if r.IntN(3) == 0 {
			b.WriteString(strings.Repeat(" ", r.IntN(300)))
		}
	}
	return b.String()[:n]
}

// Words merged in parts have the ids of words merged at once, in vocabularies
// that were trained and in one whose merges come in no sensible order.
func TestPartsAreWhole(t *testing.T) {
	list := map[string]*Encoder{"demo-model": demo(t), "random merges": randomMerges(t, false)}
	for name, e := range list {
		r := rand.New(rand.NewPCG(4, 4))
		var l, whole longMerge
		gaveUp := 0
		for range 3000 {
			w := longWord(r, 1+r.IntN(1+r.IntN(2000)))
			p := parts{model: &e.model, long: &l, w: w, a: noToken, b: noToken}
			got, ok := p.append([]uint32{7})
			if !ok {
				gaveUp++
				if !slices.Equal(got, []uint32{7}) {
					t.Fatalf("%s: %q: gave up and left %d", name, w, got)
				}
				continue
			}
			if want := whole.append([]uint32{7}, w, &e.model); !slices.Equal(got, want) {
				t.Fatalf("%s: %q: %v, want %v", name, w, got, want)
			}
			if p.steps > 3*maxRepeat*len(w)+100 {
				t.Errorf("%s: %d steps for %d bytes", name, p.steps, len(w))
			}
		}
		t.Logf("%s: gave up on %d words of 3000", name, gaveUp)
		if gaveUp > 300 {
			t.Errorf("%s: gave up on %d words", name, gaveUp)
		}
	}
}

// Where an id stands for two tokens, its length is not known, and words are
// merged at once.
func TestSharedIDs(t *testing.T) {
	e := randomMerges(t, true)
	if e.lengths != nil {
		t.Fatal("the lengths of shared ids are known")
	}
	r := rand.New(rand.NewPCG(6, 6))
	var whole longMerge
	for range 200 {
		w := longWord(r, 65+r.IntN(500))
		sc := scanner{}
		got := e.appendLong(nil, w, &sc)
		if want := whole.append(nil, w, &e.model); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", w, got, want)
		}
		if w = w[:shortMerge]; !slices.Equal(e.appendMedium(nil, w), whole.append(nil, w, &e.model)) {
			t.Fatalf("%q differs", w)
		}
	}
}

// randomMerges makes an encoder with tokens of up to 40 of a few letters,
// merged in random order. shared gives two of them one id.
func randomMerges(t testing.TB, shared bool) *Encoder {
	t.Helper()
	a := newAlphabet()
	m := &modelConfig{Vocab: map[string]uint32{}}
	for c, b := range a {
		if b >= 0 {
			m.Vocab[string(rune(c))] = uint32(b)
		}
	}
	r := rand.New(rand.NewPCG(8, 8))
	tokens := []string{"a", "b", "c", "d", "e", "t", "o", "Ġ"}
	seen := map[mergeConfig]bool{}
	for len(m.Merges) < 4000 {
		c := mergeConfig{tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]}
		if whole := c.left + c.right; len(whole) <= 40 && !seen[c] {
			seen[c] = true
			m.Merges = append(m.Merges, c)
			if _, ok := m.Vocab[whole]; !ok {
				m.Vocab[whole] = uint32(len(m.Vocab))
				tokens = append(tokens, whole)
			}
		}
	}
	if shared {
		m.Vocab[tokens[len(tokens)-1]] = m.Vocab[tokens[len(tokens)-2]]
	}
	r.Shuffle(len(m.Merges), func(i, j int) { m.Merges[i], m.Merges[j] = m.Merges[j], m.Merges[i] })
	e, err := load(m, patterns()[0], false)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The filter in front of the pairs hides none of them.
func TestPairsFilter(t *testing.T) {
	e := demo(t)
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "demo-model", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f tokenizerFile
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	m, err := parseModel(f.Model)
	if err != nil {
		t.Fatal(err)
	}
	for rank, c := range m.Merges {
		if got := e.pairs.rank(m.Vocab[c.left], m.Vocab[c.right]); got != uint32(rank) {
			t.Fatalf("merge %d, %q %q: rank %d", rank, c.left, c.right, got)
		}
	}
}

// FuzzParts looks for words that have other ids when they are merged in parts.
func FuzzParts(f *testing.F) {
	list := []*Encoder{demo(f), randomMerges(f, false)}
	r := rand.New(rand.NewPCG(2, 2))
	for range 20 {
		f.Add(longWord(r, 1+r.IntN(300)), uint8(r.IntN(20)))
	}
	f.Fuzz(func(t *testing.T, unit string, times uint8) {
		w := strings.Repeat(unit, int(times)%32) + unit[len(unit)/2:]
		if w == "" || len(w) > 5000 {
			return
		}
		for i, e := range list {
			var l, whole longMerge
			got, want := l.appendWord(nil, w, &e.model), whole.append(nil, w, &e.model)
			if !slices.Equal(got, want) {
				t.Errorf("encoder %d: %q: %v, want %v", i, w, got, want)
			}
		}
	})
}
