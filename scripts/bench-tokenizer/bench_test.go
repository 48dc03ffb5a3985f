package main

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	f := func(times []time.Duration, p float64, want time.Duration) {
		t.Helper()
		if got := percentile(times, p); got != want {
			t.Errorf("percentile %g of %d times is %d, want %d", p, len(times), got, want)
		}
	}
	f(hundred, 50, 50)
	f(hundred, 99, 99)
	f(hundred, 100, 100)
	f(hundred, 0, 1)
	f(hundred[:10], 99, 100)
	f([]time.Duration{3, 1, 2}, 50, 2)
	f([]time.Duration{7}, 99, 7)
	f(nil, 50, 0)
	if hundred[0] != 100 {
		t.Error("percentile has sorted its argument")
	}
}

func TestRatios(t *testing.T) {
	f := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	f("ratio", ratio(3*time.Second, time.Second), 3)
	f("ratio to nothing", ratio(time.Second, 0), 0)
	f("speed", megabytesPerSecond(2_000_000, 500*time.Millisecond), 4)
	f("speed in no time", megabytesPerSecond(1, 0), 0)
	f("milliseconds", milliseconds(1500*time.Microsecond), 1.5)
	f("median", float64(medianInt([]int{9, 1, 5, 7})), 5)
}

func TestGrowth(t *testing.T) {
	for _, s := range sizes {
		size := s.tokens
		if got := evenGrowth(size).tokensAt(turns); got != size {
			t.Errorf("the last turn of an even chat has %d tokens, want %d", got, size)
		}
		if got := documentGrowth(size).tokensAt(2); got != size {
			t.Errorf("the second turn of a chat on a document has %d tokens, want %d", got, size)
		}
	}
}

// TestConversationContinues: every request repeats the one before and adds a
// reply and a question, and no text comes twice.
func TestConversationContinues(t *testing.T) {
	w := &writer{bytesPerToken: 4, corpus: &corpus{prose: numbers('p', 100_000), code: numbers('c', 100_000)}}
	seen := map[string]bool{}
	for range 2 {
		bodies, err := w.conversation(growth{"test", 1000, 200})
		if err != nil {
			t.Fatal(err)
		}
		var before []message
		for turn, body := range bodies {
			var req struct{ Messages []message }
			if err := json.Unmarshal(body, &req); err != nil {
				t.Fatal(err)
			}
			if want := 2 + 2*turn; len(req.Messages) != want {
				t.Fatalf("turn %d has %d messages, want %d", turn+1, len(req.Messages), want)
			}
			for i, m := range before {
				if req.Messages[i] != m {
					t.Errorf("turn %d: message %d is not what it was", turn+1, i)
				}
			}
			for _, m := range req.Messages[max(1, len(before)):] {
				if seen[m.Content] {
					t.Errorf("turn %d: a text comes again", turn+1)
				}
				seen[m.Content] = true
			}
			before = req.Messages
		}
	}
}

// numbers is n bytes or more of text without repetition.
func numbers(letter byte, n int) string {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = append(b, letter)
		for k := i; k > 0; k /= 10 {
			b = append(b, byte('0'+k%10))
		}
	}
	return string(b)
}

func TestCutAt(t *testing.T) {
	f := func(text string, n int, want string) {
		t.Helper()
		before, after := cutAt(text, n)
		if before != want || before+after != text {
			t.Errorf("%q at %d: %q and %q, want %q before", text, n, before, after, want)
		}
	}
	f("abc", 2, "ab")
	f("abc", 5, "abc")
	f("a世c", 2, "a")
	f("a世c", 4, "a世")
}

// TestByteAlphabet: the alphabet names every byte once, and those that tell
// byte-level vocabularies apart right.
func TestByteAlphabet(t *testing.T) {
	a := byteAlphabet()
	bytes := map[byte]bool{}
	for _, b := range a {
		bytes[b] = true
	}
	if len(a) != 256 || len(bytes) != 256 {
		t.Errorf("%d characters for %d bytes", len(a), len(bytes))
	}
	if a['Ġ'] != ' ' || a['Ċ'] != '\n' || a['A'] != 'A' {
		t.Errorf("space is %q, newline %q, A %q", a['Ġ'], a['Ċ'], a['A'])
	}
}

func TestBlocksAreFull(t *testing.T) {
	ids := make([]uint32, 3*blockSize+5)
	for i := range ids {
		ids[i] = uint32(i)
	}
	hashes := sha256Blocks(ids)
	if len(hashes) != 3 || hashes[0] == hashes[1] || hashes[0] != sha256Blocks(ids[:blockSize])[0] {
		t.Errorf("hashes of 3 blocks: %x", hashes)
	}
	for _, h := range hashes {
		if h>>63 != 0 {
			t.Errorf("hash %x has more than 63 bits", h)
		}
	}
}

func TestSummaries(t *testing.T) {
	r := &chatsResult{size: largest, growth: documentGrowth(largest), cacheBytes: []int{500}, lastTokens: []int{100}}
	for turn := 2; turn <= turns; turn++ {
		ms := time.Duration(turn) * time.Millisecond
		r.observations = append(r.observations, observation{
			turn: turn, tokens: 10 * turn,
			replaced: replacedTimes{total: 100 * ms}, own: ownTimes{render: ms / 4, tokenize: ms / 8, total: ms / 2},
		})
	}
	rows := r.wayRows()
	if rows[0].Requests != 1 || rows[1].Requests != turns-1 || rows[0].ReplacedP50 != 200 || rows[1].ReplacedP50 != 600 ||
		rows[1].ReplacedP99 != 1000 || rows[1].RatioP50 != 200 {
		t.Errorf("%+v", rows)
	}
	last := r.turnsRows()[1]
	if last.Tokens != 100 || last.BytesPerToken != 5 || last.Total != 3.75 {
		t.Errorf("%+v", last)
	}
	rep := report{Turns: r.turnsRows(), Ways: rows, Speed: []speedRow{{Ratio: 4}, {Ratio: 2, Tokenizer: "slow"}}}
	rep.judge()
	if met := rep.Targets; met[0].Met || met[0].Got != 2 || met[1].Met || !met[2].Met || len(met) != 4 {
		t.Errorf("%+v", met)
	}
}
