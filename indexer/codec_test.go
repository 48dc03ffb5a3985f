package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sampleIndex has something of everything that a snapshot can hold.
func sampleIndex(t testing.TB, o Options) *Index {
	x := newIndex(t, o)
	hs := x.Hasher()
	x.NoteLoRA("m", "sql")
	tb := x.Table(TableKey{Model: "m", BlockSize: testBlockSize})
	a, b := tb.Open(StreamID{Instance: "pod-0"}), tb.Open(StreamID{Instance: "pod-1", Rank: 3})
	gone := tb.Open(StreamID{Instance: "pod-2"})
	trunk := newChain(1, 40)
	a.Store(space(0).run(GPU, trunk, 0, 40))
	a.Store(space(0).run(GPU, trunk, 0, 2)) // copies
	a.Store(space(0).run(CPU, trunk, 0, 7))
	b.Store(space(1).run(GPU, trunk, 0, 20)) // other names
	b.Store(space(1).run(Disk, trunk.branch(2, 5, 4), 5, 9))
	b.SetPartial(true)
	b.Store(space(1).run(GPU, newChain(3, 9), 4, 9)) // waits for its parent
	gone.Store(space(0).run(GPU, newChain(4, 9), 0, 9))
	r := space(0).run(GPU, newChain(5, 6), 0, 6)
	r.Scope = hs.Scope(Scope{LoRA: "sql", Salt: "x"})
	a.Store(r)
	a.Remove(GPU, space(0).engines(trunk.seq[39:])) // lately
	gone.Retire()
	x.Table(TableKey{Model: "m", BlockSize: 8, Bigram: true}).Open(StreamID{Instance: "pod-0"})
	return x
}

func restore(t testing.TB, snapshot []byte, o Options) (*Index, map[string]*Holder) {
	t.Helper()
	x := newIndex(t, o)
	list, refused, err := x.Restore(snapshot)
	if err != nil || refused > 0 {
		t.Fatalf("%d refused, %v", refused, err)
	}
	holders := map[string]*Holder{}
	for _, r := range list {
		holders[fmt.Sprint(r.Key, r.Stream)] = r.Holder
	}
	return x, holders
}

// Restore reads a snapshot and uses it.
func (x *Index) Restore(b []byte) ([]Restored, int, error) {
	s, err := x.ReadSnapshot(b)
	if err != nil {
		return nil, 0, err
	}
	s.Use()
	return s.Holders, s.Refused, nil
}

// TestSnapshotIsRestored: what is restored answers as before, writes the same
// snapshot, and takes what comes next.
func TestSnapshotIsRestored(t *testing.T) {
	old := sampleIndex(t, Options{})
	waitSwept(t, old)
	key := TableKey{Model: "m", BlockSize: testBlockSize}
	x, holders := restore(t, old.AppendSnapshot(nil), Options{})
	if len(holders) != 3 {
		t.Errorf("%d holders", len(holders))
	}
	for _, c := range []chain{newChain(1, 40), newChain(1, 40).branch(2, 5, 4), newChain(4, 9), newChain(5, 6)} {
		if d := cmp.Diff(matched(t, old.Table(key), c), matched(t, x.Table(key), c)); d != "" {
			t.Error(d)
		}
	}
	if model, lora, ok := x.Resolve("sql"); model != "m" || lora != "sql" || !ok {
		t.Errorf("the adapter is %s on %s, %v", lora, model, ok)
	}
	if d := cmp.Diff(old.Stats().Tables[0].Pairs, x.Stats().Tables[0].Pairs); d != "" {
		t.Error(d)
	}
	// The orphans' parent comes; a copy goes, and the block stays; the name that
	// was removed lately is known.
	pod0, pod1 := holders[fmt.Sprint(key, StreamID{Instance: "pod-0"})], holders[fmt.Sprint(key, StreamID{Instance: "pod-1", Rank: 3})]
	if res := pod1.Store(space(1).run(GPU, newChain(3, 9), 0, 4)); res.Attached != 5 {
		t.Errorf("%+v", res)
	}
	trunk := newChain(1, 40)
	pod0.Remove(GPU, space(0).engines(trunk.seq[:1]))
	if m := matched(t, x.Table(key), trunk)[StreamID{Instance: "pod-0"}]; m[GPU] != 39 {
		t.Errorf("%v after a copy was removed", m)
	}
	if known, _ := pod0.Locate(CPU, space(0).engines(trunk.seq[39:])); known != 1 {
		t.Error("a name that was removed lately is not known")
	}
}

func TestSnapshotOfARestoredIndexIsTheSame(t *testing.T) {
	x := sampleIndex(t, Options{})
	waitSwept(t, x)
	// The order of entries may differ once, where gaps are filled.
	once, _ := restore(t, x.AppendSnapshot(nil), Options{})
	first := once.AppendSnapshot(nil)
	twice, _ := restore(t, first, Options{})
	if second := twice.AppendSnapshot(nil); len(first) != len(second) {
		t.Errorf("%d bytes, then %d", len(first), len(second))
	}
}

// TestBrokenSnapshots: every byte of a snapshot changed, and every end cut off.
// None is a crash, and none leaves anything behind where it is refused.
func TestBrokenSnapshots(t *testing.T) {
	old := sampleIndex(t, Options{})
	waitSwept(t, old)
	whole := old.AppendSnapshot(nil)
	try := func(what string, b []byte) {
		t.Helper()
		x, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if _, _, err := x.Restore(b); err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatalf("%s: %v", what, err)
			}
			if s := x.Stats(); len(s.Tables) != 0 || x.quota.bytes.Load() != 0 || x.quota.blocks.Load() != 0 {
				t.Fatalf("%s: half of it is there: %+v, %d bytes, %d blocks", what, s, x.quota.bytes.Load(), x.quota.blocks.Load())
			}
			return
		}
		for _, tb := range x.dir.Load().tables {
			tb.MatchSeq(newChain(1, 40).seq, 0, &Result{})
		}
	}
	for i := range whole {
		try(fmt.Sprintf("cut at %d", i), whole[:i])
		for _, bit := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(whole)
			b[i] ^= bit
			try(fmt.Sprintf("byte %d ^ %#x", i, bit), b)
		}
	}
	x, _ := restore(t, whole, Options{})
	if _, _, err := x.Restore(whole); !errors.Is(err, ErrSnapshot) {
		t.Errorf("restored into an index that is not empty: %v", err)
	}
	if _, _, err := newIndex(t, Options{Seed: 7}).Restore(whole); !errors.Is(err, ErrSnapshot) {
		t.Errorf("restored with another seed: %v", err)
	}
}

// TestSnapshotInLessRoom: an index with a bound takes what fits.
func TestSnapshotInLessRoom(t *testing.T) {
	old := sampleIndex(t, Options{})
	waitSwept(t, old)
	x := newIndex(t, Options{MaxBlocks: 10})
	_, refused, err := x.Restore(old.AppendSnapshot(nil))
	if n := x.Stats().Tables[0].UniqueBlocks; err != nil || refused == 0 || n != 10 {
		t.Errorf("%d blocks, %d refused, %v", n, refused, err)
	}
}

func FuzzRestore(f *testing.F) {
	x := sampleIndex(f, Options{})
	waitSwept(f, x)
	f.Add(x.AppendSnapshot(nil))
	empty := newIndex(f, Options{})
	f.Add(empty.AppendSnapshot(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := New(Options{MaxBlocks: 1000})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if _, _, err := x.Restore(b); err == nil {
			x.AppendSnapshot(nil)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	const blocks = 200_000
	x := newIndex(b, Options{})
	tb := x.Table(TableKey{Model: "m", BlockSize: testBlockSize})
	var holders []*Holder
	for i := range 64 {
		holders = append(holders, tb.Open(StreamID{Instance: fmt.Sprint("pod-", i)}))
	}
	for i := range blocks / 100 {
		c := newChain(uint64(i), 100)
		for j := range 1 + i%5 {
			holders[(i+7*j)%64].Store(space(0).run(GPU, c, 0, 100-10*j))
		}
	}
	snapshot := x.AppendSnapshot(nil)
	b.Run("write", func(b *testing.B) {
		buf := make([]byte, 0, len(snapshot)+1024)
		for b.Loop() {
			buf = x.AppendSnapshot(buf[:0])
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		b.ReportMetric(float64(len(snapshot))/blocks, "B/block")
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			y, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			if _, _, err := y.Restore(snapshot); err != nil {
				b.Fatal(err)
			}
			y.Close()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
	})
}
