package snapshot

import (
	"strings"
	"testing"
	"time"
)

func TestIDs(t *testing.T) {
	var s IDs
	now := time.UnixMilli(1_700_000_000_000)
	last := ID{}
	next := func(now time.Time, after ID) {
		t.Helper()
		id := s.Next(now, after)
		if id.Compare(last) <= 0 || id.Compare(after) <= 0 || id.String() <= last.String() {
			t.Fatalf("%s follows %s, and should be after %s", id, last, after)
		}
		if back, err := ParseID(id.String()); err != nil || back != id {
			t.Fatalf("%s is read as %s, %v", id, back, err)
		}
		last = id
	}
	for range 10_000 {
		next(now, ID{})
	}
	next(now.Add(-time.Hour), ID{}) // the clock went back
	var ahead IDs
	next(now, ahead.Next(now.Add(24*time.Hour), ID{})) // another machine's clock is ahead
	next(now.Add(48*time.Hour), ID{})
	want(t, "time", last.Time(), uint64(now.Add(48*time.Hour).UnixMilli()))
	var x, y IDs
	if a, b := x.Next(now, last), y.Next(now, last); a == b {
		t.Errorf("two writers whose clocks are behind have one id, %s", a)
	}
	carry := ID{0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}
	increment(&carry)
	want(t, "incremented", carry, ID{0, 0, 0, 0, 0, 2})
	for _, text := range []string{"", "x", strings.ToLower(last.String()), last.String() + "0", "8" + last.String()[1:]} {
		if id, err := ParseID(text); err == nil {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}
