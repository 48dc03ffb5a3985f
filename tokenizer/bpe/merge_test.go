package bpe

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The merge for short words and the one for long words give the same ids.
func TestMergesAgree(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "demo-model", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	var l longMerge
	const letters = " etaoinshrdlu"
	for range 20000 {
		w := make([]byte, 1+r.IntN(shortMerge))
		for i := range w {
			w[i] = letters[r.IntN(len(letters))]
			if r.IntN(8) == 0 {
				w[i] = byte(r.IntN(256))
			}
		}
		short, long := e.appendShort(nil, string(w)), l.append(nil, string(w), &e.model)
		if !slices.Equal(short, long) {
			t.Fatalf("%q: short %v, long %v", w, short, long)
		}
	}
}

// An agenda gives what was put on it by rank, then position, in whatever order
// that happened.
func TestAgenda(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a agenda
	for range 200 {
		var waiting [][2]int
		take := func() {
			slices.SortFunc(waiting, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
			rank, pos, ok := a.pop()
			if !ok || int(rank) != waiting[0][0] || int(pos) != waiting[0][1] {
				t.Fatalf("pop: %d %d %v, want %v", rank, pos, ok, waiting[0])
			}
			waiting = waiting[1:]
		}
		for range r.IntN(300) {
			rank, pos := r.IntN(20), r.IntN(1000)
			a.push(uint32(rank), int32(pos))
			waiting = append(waiting, [2]int{rank, pos})
			if r.IntN(3) == 0 {
				take()
			}
		}
		for len(waiting) > 0 {
			take()
		}
		if _, _, ok := a.pop(); ok {
			t.Fatal("pop of an empty agenda")
		}
	}
}
