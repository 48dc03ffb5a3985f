package events

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kvindex/kvindex/indexer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	rapid.TB
	Cleanup(func())
}

// bench is a session with an index of its own and what a transport would do.
type bench struct {
	t     tester
	index *indexer.Index
	s     *Session
	ts    float64 // of the next batch: payloads of different processes differ
}

func newBench(t tester, change func(*SessionOptions)) *bench {
	t.Helper()
	index, err := indexer.New(indexer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := SessionOptions{
		Index: index, Instance: "pod-0", Model: "m",
		Stream: StreamSpec{Endpoint: "tcp://pod-0:5557", ReplayEndpoint: "tcp://pod-0:5558"},
	}
	if change != nil {
		change(&o)
	}
	b := &bench{t: t, index: index, s: NewSession(o), ts: 1}
	t.Cleanup(func() {
		b.s.Close()
		index.Close()
	})
	return b
}

// batch encodes events as a publisher would.
func (b *bench) batch(events ...any) []byte {
	b.t.Helper()
	b.ts++
	p, err := msgpack.Marshal([]any{b.ts, events, 0})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// stored is a BlockStored of n blocks of 4 tokens that begins at block first
// of prompt; engine hashes are prompt*1000+block.
func stored(prompt, first, n int, more ...string) map[string]any {
	e := map[string]any{"type": "BlockStored", "block_size": 4, "lora_id": nil, "medium": "GPU", "lora_name": nil}
	var hashes []uint64
	for i := first; i < first+n; i++ {
		hashes = append(hashes, engineHash(prompt, i))
	}
	e["block_hashes"] = hashes
	e["parent_block_hash"] = nil
	if first > 0 {
		e["parent_block_hash"] = engineHash(prompt, first-1)
	}
	e["token_ids"] = promptTokens(prompt, first+n)[4*first:]
	for i := 0; i+1 < len(more); i += 2 {
		e[more[i]] = more[i+1]
	}
	return e
}

func engineHash(prompt, block int) uint64 { return uint64(prompt*1000 + block) }

func promptTokens(prompt, blocks int) []uint32 {
	out := make([]uint32, 0, 4*blocks)
	for i := range 4 * blocks {
		out = append(out, uint32(prompt*100_000+i))
	}
	return out
}

func removed(prompt, block int) map[string]any {
	return map[string]any{"type": "BlockRemoved", "block_hashes": []uint64{engineHash(prompt, block)}, "medium": "GPU"}
}

func cleared() map[string]any { return map[string]any{"type": "AllBlocksCleared"} }

func (b *bench) live(seq uint64, payload []byte) {
	b.s.Live([][]byte{nil, binary.BigEndian.AppendUint64(nil, seq), payload})
}

// serve answers the wanted replay with the given batches, by seq.
func (b *bench) serve(batches ...[]byte) {
	b.t.Helper()
	id, from, ok := b.s.Replay()
	if !ok {
		b.t.Fatal("no replay is wanted")
	}
	for seq := from; seq < uint64(len(batches)); seq++ {
		b.s.Replayed(id, replayFrames(seq, batches[seq]))
	}
	b.s.Replayed(id, replayFrames(EndSeq, nil))
}

// replayFrames is one message of a replay.
func replayFrames(seq uint64, payload []byte) [][]byte {
	return [][]byte{nil, nil, binary.BigEndian.AppendUint64(nil, seq), payload}
}

// settle serves replays until none is wanted.
func (b *bench) settle(batches ...[]byte) {
	b.t.Helper()
	for range 20 {
		if _, _, ok := b.s.Replay(); !ok {
			return
		}
		b.serve(batches...)
	}
	b.t.Fatal("replays do not end")
}

// matched is how many blocks of prompt pod-0 holds.
func (b *bench) matched(prompt, blocks int) int {
	return b.match(promptTokens(prompt, blocks), indexer.Scope{})
}

func (b *bench) match(tokens []uint32, scope indexer.Scope) int {
	best := 0
	for _, t := range b.index.Tables("m") {
		var r indexer.Result
		t.MatchTokens(tokens, b.index.Hasher().Scope(scope), 0, &r)
		for _, s := range r.Streams {
			best = max(best, s.Blocks[indexer.GPU])
		}
	}
	return best
}

func (b *bench) want(state State, reason string) {
	b.t.Helper()
	h := b.s.Health()
	if h.State != state || !strings.HasPrefix(h.Reason, reason) || (reason == "") != (h.Reason == "") {
		b.t.Errorf("state is %v (%s), want %v (%s)", h.State, h.Reason, state, reason)
	}
}

func (b *bench) wantMatched(prompt, want int) {
	b.t.Helper()
	if got := b.matched(prompt, 20); got != want {
		b.t.Errorf("prompt %d: %d blocks match, want %d", prompt, got, want)
	}
}

func TestSessionFirstContactReplaysFromTheStart(t *testing.T) {
	b := newBench(t, nil)
	b.want(Connecting, "")
	all := [][]byte{b.batch(stored(1, 0, 3)), b.batch(stored(1, 3, 2)), b.batch(stored(1, 5, 1))}
	b.s.Connected()
	b.want(Replaying, "")
	b.live(2, all[2]) // before the replay: waits
	b.wantMatched(1, 0)
	b.settle(all...)
	b.want(Live, "")
	b.wantMatched(1, 6)
	st := b.s.Status()
	if st.LastSeq != 2 || st.Counters.Batches["applied"] != 3 || st.BlockSize != 4 {
		t.Errorf("status %+v", st)
	}
}

func TestSessionGapIsReplayedInOrder(t *testing.T) {
	b := newBench(t, nil)
	b.s.Connected()
	b.settle()
	// Batch 1 stores what batch 2 removes again: applied late it would bring
	// dead blocks back.
	all := [][]byte{b.batch(stored(1, 0, 2)), b.batch(stored(1, 2, 2)), b.batch(removed(1, 3), removed(1, 2))}
	b.live(0, all[0])
	b.live(2, all[2])
	b.want(Replaying, "")
	b.settle(all...)
	b.want(Live, "")
	b.wantMatched(1, 2)
}

func TestSessionGapWithoutReplayDegrades(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) { o.Stream.ReplayEndpoint = "" })
	b.s.Connected()
	b.want(Degraded, CauseHistory)
	b.live(0, b.batch(stored(1, 0, 2)))
	b.want(Live, "")
	b.live(3, b.batch(stored(2, 0, 2)))
	b.want(Degraded, CauseGap+": 2 batches lost")
	b.wantMatched(1, 2)
	b.wantMatched(2, 2)
	b.live(4, b.batch(cleared())) // from here on everything is known again
	b.want(Live, "")
	b.wantMatched(1, 0)
}

func TestSessionRestart(t *testing.T) {
	t.Run("visible", func(t *testing.T) {
		b := newBench(t, nil)
		b.s.Connected()
		old := b.batch(stored(1, 0, 2))
		b.settle(old)
		b.live(1, b.batch(stored(1, 2, 2)))
		b.live(0, b.batch(stored(2, 0, 1))) // no news of a disconnect yet
		b.want(Live, "")
		b.wantMatched(1, 0)
		b.wantMatched(2, 1)
	})
	t.Run("masked by a faster process", func(t *testing.T) {
		b := newBench(t, nil)
		b.s.Connected()
		b.settle(b.batch(stored(1, 0, 2)), b.batch(stored(1, 2, 1)))
		b.wantMatched(1, 3)
		b.s.Disconnected()
		b.want(Disconnected, "")
		b.wantMatched(1, 3) // from before, and said so
		b.s.Connected()
		b.settle(b.batch(stored(2, 0, 1)), b.batch(stored(2, 1, 1)), b.batch(stored(2, 2, 1)))
		b.want(Live, "")
		b.wantMatched(1, 0)
		b.wantMatched(2, 3)
	})
	t.Run("of an engine that has published nothing since", func(t *testing.T) {
		b := newBench(t, nil)
		b.s.Connected()
		b.settle(b.batch(stored(1, 0, 2)))
		b.s.Disconnected()
		b.s.Connected()
		b.settle()
		b.want(Live, "")
		b.wantMatched(1, 0)
	})
	t.Run("without a replay nothing proves continuity", func(t *testing.T) {
		b := newBench(t, func(o *SessionOptions) { o.Stream.ReplayEndpoint = "" })
		b.s.Connected()
		b.live(0, b.batch(stored(1, 0, 2)))
		b.s.Disconnected()
		b.s.Connected()
		b.want(Degraded, CauseUnverified)
		b.live(1, b.batch(stored(1, 2, 1)))
		b.want(Degraded, CauseHistory)
		b.wantMatched(1, 0)
	})
}

func TestSessionPoisonCostsOneBatch(t *testing.T) {
	b := newBench(t, nil)
	b.s.Connected()
	b.settle()
	b.live(0, b.batch(stored(1, 0, 2)))
	b.live(1, []byte("{\"json\": true}"))
	b.want(Degraded, CausePoison+": 1 batches")
	b.live(2, b.batch(stored(2, 0, 1)))
	b.wantMatched(1, 2)
	b.wantMatched(2, 1)
	if c := b.s.Status().Counters; c.Batches["poison"] != 1 || c.Lost != 1 {
		t.Errorf("counters %+v", c)
	}
}

func TestSessionBadFrames(t *testing.T) {
	b := newBench(t, nil)
	b.s.Connected()
	b.settle()
	good := b.batch(stored(1, 0, 1))
	b.s.Live(nil)
	b.s.Live([][]byte{good})
	b.s.Live([][]byte{nil, {1}, good})
	b.s.Live([][]byte{nil, binary.BigEndian.AppendUint64(nil, EndSeq), good})
	b.live(0, good)
	b.want(Live, "")
	b.wantMatched(1, 1)
	if c := b.s.Status().Counters; c.Frames[FrameCount] != 2 || c.Frames[FrameSeqLength] != 1 || c.Frames[FrameSeqReserved] != 1 {
		t.Errorf("counters %+v", c.Frames)
	}
}

func TestApplyContent(t *testing.T) {
	f := func(name string, check func(b *bench), events ...any) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.s.Connected()
			b.settle()
			b.live(0, b.batch(events...))
			check(b)
		})
	}
	skips := func(reason SkipReason, n uint64) func(*bench) {
		return func(b *bench) {
			b.t.Helper()
			if got := b.s.Status().Counters.Skips[reason]; got != n {
				b.t.Errorf("%d events skipped as %s, want %d", got, reason, n)
			}
		}
	}
	f("other attention groups do not count", func(b *bench) {
		skips(SkipGroup, 2)(b)
		b.wantMatched(1, 2)
		b.wantMatched(2, 0)
	},
		with(stored(1, 0, 2), "group_idx", 5, "kv_cache_spec_kind", "full_attention"),
		with(stored(2, 0, 2), "group_idx", 0, "kv_cache_spec_kind", "sliding_window"),
		with(removed(1, 1), "group_idx", 0)) // removals name only the group
	refused := func(reason SkipReason) func(*bench) {
		return func(b *bench) {
			b.t.Helper()
			skips(reason, 1)(b)
			b.want(Degraded, CauseEvents)
			b.live(1, b.batch(cleared()))
			b.want(Live, "")
		}
	}
	f("tokens that do not fill the blocks", refused(SkipTokens), with(stored(1, 0, 2), "token_ids", []int{1, 2, 3}))
	f("extra keys of another count", refused(SkipTokens), with(stored(1, 0, 2), "extra_keys", []any{nil}))
	f("another block size than before", refused(SkipBlockSize), stored(1, 0, 1), with(stored(1, 1, 1), "block_size", 1, "token_ids", []int{7}))
	f("... of an offload connector", func(b *bench) { skips(SkipBlockSize, 1)(b); b.want(Live, "") },
		stored(1, 0, 1), with(stored(1, 1, 1), "block_size", 1, "token_ids", []int{7}, "medium", "CPU"))
	f("remote storage", skips(SkipRemote, 1), with(stored(1, 0, 2), "medium", "FS", "locality", "REMOTE"))
	f("an unknown medium is not the GPU", func(b *bench) { skips(SkipMedium, 1)(b); b.wantMatched(1, 0) }, with(stored(1, 0, 2), "medium", "TAPE"))
	f("offload: a location of known blocks", func(b *bench) {
		b.wantMatched(1, 2)
		if st := b.s.Status(); st.Blocks != [3]int{2, 1, 0} {
			b.t.Errorf("blocks %v", st.Blocks)
		}
	}, stored(1, 0, 2), map[string]any{"type": "BlockStored", "block_hashes": []uint64{engineHash(1, 0)}, "parent_block_hash": nil, "token_ids": []int{}, "block_size": 0, "lora_id": nil, "medium": "CPU"})
	f("offload before any tokens", skips(SkipNoHolder, 1), map[string]any{"type": "BlockStored", "block_hashes": []uint64{1}, "parent_block_hash": nil, "token_ids": []int{}, "block_size": 0, "lora_id": nil, "medium": "CPU"})
	f("a new kind of event is no loss", func(b *bench) {
		skips(SkipUnknownTag, 1)(b)
		b.want(Live, "")
	}, stored(1, 0, 1), map[string]any{"type": "BlockInactive", "block_hashes": []int{1}})
	f("a bad event of a known kind is", func(b *bench) {
		b.want(Degraded, CauseEvents)
		b.wantMatched(1, 1)
	}, stored(1, 0, 1), with(stored(1, 1, 1), "block_hashes", []string{"x"}))
	f("unchained hashes", func(b *bench) { b.want(Degraded, CauseUnchained) },
		with(stored(1, 0, 1), "block_hashes", []uint64{uint64(pythonTupleHash(promptTokens(1, 1)))}))
	f("scopes", func(b *bench) {
		tokens := promptTokens(1, 2)
		for scope, want := range map[indexer.Scope]int{
			{}:                          0,
			{LoRA: "ada"}:               2,
			{LoRA: "adb"}:               0,
			{Salt: "s"}:                 1,
			{Salt: "t"}:                 0,
			{LoRA: "ada", Salt: "s"}:    0,
			{Tenant: "x", LoRA: "ada"}:  0,
			{LoRA: "\x00lora_id:7"}:     2,
			{Tenant: "default"}:         0,
			{Salt: "sglang"}:            2,
			{LoRA: "adc", Salt: "both"}: 2,
		} {
			if got := b.match(tokens, scope); got != want {
				b.t.Errorf("scope %+v: %d blocks, want %d", scope, got, want)
			}
		}
	},
		with(stored(1, 0, 2), "lora_name", "ada", "extra_keys", []any{[]any{"ada"}, []any{"ada"}}),
		with(stored(1, 0, 1), "extra_keys", []any{[]any{"s"}}),
		with(stored(1, 0, 2), "lora_id", 7),
		with(stored(1, 0, 2), "cache_salt", "sglang"),
		with(stored(1, 0, 2), "lora_name", "adc", "extra_keys", []any{[]any{"adc", "both"}, []any{"adc"}}),
	)
	f("pictures separate prompts", func(b *bench) { b.wantMatched(1, 1) },
		with(stored(1, 0, 2), "extra_keys", []any{nil, []any{[]any{"picture", -3}}}))
}

func TestApplyBlockSizeIsRefused(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) { o.BlockSize = 16 })
	b.s.Connected()
	b.settle()
	b.live(0, b.batch(stored(1, 0, 2)))
	b.want(Degraded, CauseBlockSize)
	b.wantMatched(1, 0)
}

func TestApplyGPUClearOnly(t *testing.T) {
	b := newBench(t, func(o *SessionOptions) { o.GPUClearOnly = true })
	b.s.Connected()
	b.settle()
	b.live(0, b.batch(stored(1, 0, 2), with(stored(1, 0, 2), "medium", "CPU")))
	b.live(1, b.batch(cleared()))
	if st := b.s.Status(); st.Blocks != [3]int{0, 2, 0} {
		t.Errorf("blocks %v", st.Blocks)
	}
}

func with(e map[string]any, kv ...any) map[string]any {
	for i := 0; i < len(kv); i += 2 {
		e[kv[i].(string)] = kv[i+1]
	}
	return e
}

// TestSessionSurvivesHostileFixtures feeds every hostile payload between good
// batches: each costs at most itself.
func TestSessionSurvivesHostileFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/fixtures/hostile_*.msgpack")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	slices.Sort(files)
	b := newBench(t, nil)
	b.s.Connected()
	b.settle()
	for i, file := range files {
		payload, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.live(uint64(2*i), payload)
		b.live(uint64(2*i+1), b.batch(cleared(), stored(i, 0, 2)))
		if got := b.matched(i, 2); got != 2 {
			t.Fatalf("after %s: %d blocks of the next batch, want 2", fmt.Sprint(file), got)
		}
	}
	if got := b.s.Status().LastSeq; got != uint64(2*len(files)-1) {
		t.Errorf("last seq %d", got)
	}
}

// TestFullIndex: a stream whose blocks do not fit says so, until the engine has
// given up what is missing.
func TestFullIndex(t *testing.T) {
	index, err := indexer.New(indexer.Options{MaxBlocks: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	b := newBench(t, func(o *SessionOptions) { o.Index = index })
	b.s.Connected()
	b.settle()
	b.live(0, b.batch(stored(1, 0, 2)))
	b.want(Live, "")
	b.live(1, b.batch(stored(2, 0, 3)))
	b.want(Degraded, CauseCapacity+": the index is full: up to 2 of")
	if n := b.s.Status().Counters.Refused; n != 2 {
		t.Errorf("%d blocks refused, want 2", n)
	}
	b.live(2, b.batch(removed(2, 2), removed(2, 1)))
	b.want(Live, "")
	b.live(3, b.batch(removed(1, 1), stored(2, 1, 1)))
	b.want(Live, "")
	b.live(4, b.batch(stored(3, 0, 9)))
	b.want(Degraded, CauseCapacity)
	b.live(5, b.batch(cleared()))
	b.want(Live, "")
}
