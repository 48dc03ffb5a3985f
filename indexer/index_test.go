package indexer

import (
	"fmt"
	"sync"
	"testing"
)

func TestOptions(t *testing.T) {
	f := func(o Options, ok bool) {
		t.Helper()
		if err := o.Validate(); (err == nil) != ok {
			t.Errorf("%+v: Validate() = %v", o, err)
		}
		x, err := New(o)
		if (err == nil) != ok {
			t.Errorf("%+v: New() gives %v", o, err)
		}
		if x != nil {
			x.Close()
			x.Close() // again does no harm
		}
	}
	f(Options{}, true)
	f(Options{Seed: 5, MaxOrphanBlocks: 1, DuplicatePolicy: Set}, true)
	f(Options{MaxOrphanBlocks: -1}, false)
	f(Options{DuplicatePolicy: 2}, false)
	for p, name := range map[DuplicatePolicy]string{Refcount: "refcount", Set: "set", 7: "unknown"} {
		want(t, "name", p.String(), name)
	}
	want(t, "seed", newIndex(t, Options{}).Hasher().Seed(), DefaultSeed)
	want(t, "seed", newIndex(t, Options{Seed: 8}).Hasher().Seed(), 8)
}

func TestTables(t *testing.T) {
	x := newIndex(t, Options{})
	keys := []TableKey{{"m", 64, false}, {"m", 16, true}, {"n", 16, false}, {"m", 16, false}, {"m", 32, true}}
	for _, k := range keys {
		tb := x.Table(k)
		want(t, "key", tb.Key(), k)
		if x.Table(k) != tb {
			t.Errorf("%+v has two tables", k)
		}
	}
	var got []TableKey
	for _, tb := range x.Tables("m") {
		got = append(got, tb.Key())
	}
	want(t, "tables", got, []TableKey{{"m", 16, false}, {"m", 16, true}, {"m", 32, true}, {"m", 64, false}})
	want(t, "tables of an unknown model", len(x.Tables("?")), 0)
	want(t, "models", x.Models(), []string{"m", "n"})
	if n := testing.AllocsPerRun(100, func() { x.Tables("m") }); n != 0 {
		t.Errorf("Tables allocates %v times", n)
	}
	stats := x.Stats()
	want(t, "tables in stats", len(stats.Tables), len(keys))
	want(t, "first in stats", stats.Tables[0].Key, TableKey{"m", 16, false})
}

func TestTablesConcurrently(t *testing.T) {
	x := newIndex(t, Options{})
	var wg sync.WaitGroup
	got := make([]*Table, 8)
	for i := range got {
		wg.Go(func() {
			got[i] = x.Table(TableKey{"m", 16, false})
			x.NoteLoRA("m", fmt.Sprint("adapter-", i))
			x.Resolve("m")
		})
	}
	wg.Wait()
	for _, tb := range got {
		if tb != got[0] {
			t.Fatal("one key, two tables")
		}
	}
}

func TestResolve(t *testing.T) {
	x := newIndex(t, Options{})
	f := func(name, model, lora string, ok bool) {
		t.Helper()
		m, l, k := x.Resolve(name)
		want(t, "resolve "+name, []any{m, l, k}, []any{model, lora, ok})
	}
	f("base", "", "", false)
	x.Table(TableKey{"base", 16, false})
	f("base", "base", "", true)

	x.Alias("declared", "declared")
	f("declared", "declared", "", true)
	x.Alias("short", "org/long")
	f("short", "org/long", "", true)
	f("org/long", "org/long", "", true)
	x.Alias("short", "base") // a later word counts
	f("short", "base", "", true)
	x.Alias("short", "base")

	x.NoteLoRA("base", "sql")
	x.NoteLoRA("base", "sql")
	x.NoteLoRA("base", "")
	f("sql", "base", "sql", true)
	f("", "", "", false)
	x.NoteLoRA("declared", "sql") // ambiguous
	f("sql", "", "", false)
	x.NoteLoRA("base", "short") // an alias wins, and a model
	f("short", "base", "", true)
	x.NoteLoRA("declared", "base")
	f("base", "base", "", true)
	want(t, "models", x.Models(), []string{"base", "declared", "org/long"})
}

func TestNoteLoRAIsBounded(t *testing.T) {
	x := newIndex(t, Options{})
	x.change(func(d *directory) {
		d.declare("m")
		for i := range maxLoRANames {
			d.loras[fmt.Sprint(i)] = []string{"m"}
		}
	})
	x.NoteLoRA("m", "one more")
	if _, _, ok := x.Resolve("one more"); ok {
		t.Error("an adapter beyond the bound was kept")
	}
	x.NoteLoRA("n", "7")
	if _, _, ok := x.Resolve("7"); ok {
		t.Error("an adapter of two models was not noticed beyond the bound")
	}
	if n := testing.AllocsPerRun(100, func() { x.NoteLoRA("m", "5") }); n != 0 {
		t.Errorf("noting a known adapter allocates %v times", n)
	}
}
