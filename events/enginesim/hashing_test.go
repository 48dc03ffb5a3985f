package enginesim

import (
	"bytes"
	"slices"
	"testing"
)

// TestHashVectors compares with hashes that vLLM itself publishes for tokens
// 0 to 47 in blocks of 16 (PYTHONHASHSEED=0 and unset).
func TestHashVectors(t *testing.T) {
	f := func(untagged bool, seed, lora, salt string, want ...uint64) {
		t.Helper()
		h := newHasher(HashUint64, seed, untagged)
		var p *prefix
		for i, w := range want {
			p = h.next(h.scope(lora, salt, 0), p, upTo(16*i, 16*i+16))
			if p.hash != UintHash(w) {
				t.Errorf("block %d with seed %q, LoRA %q, salt %q: got %v, want %d", i, seed, lora, salt, p.hash, w)
			}
		}
	}
	f(false, "0", "", "", h0, h1, h2)
	f(true, "0", "my-lora", "", 14363917845617146483, 14169151309622765391, 8968918875924509582)
	f(true, "0", "", "tenant-a", 8020952614053081591, 2326720499465815097, 16210581411607175761)
	f(true, "0", "my-lora", "tenant-a", 14149053605448078159, 13102935484630459929, 8208373405511635468)
	f(false, "0", "my-lora", "", 4768322250183483814, 12103300782264718811, 14521745567898234552)
	f(false, "0", "", "tenant-a", 437527039463953821, 17079356141526896586, 2532868634773454479)
	f(false, "", "", "", 2233398808101521225, 17911472383915781900, 554445467503876716)

	h := newHasher(HashBytes, "0", false)
	want := fromHex(t, "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c")
	if p := h.next(h.scope("", "", 0), nil, upTo(0, 16)); p.hash != BytesHash(want) || !bytes.Equal(p.id[:], want) {
		t.Errorf("got %v, want %x", p.hash, want)
	}
	h = newHasher(HashSGLang, "", false)
	if p := h.next(h.scope("", "", 0), nil, upTo(0, 16)); p.hash != IntHash(s0) {
		t.Errorf("got %v, want %d", p.hash, s0)
	}
}

// TestHashRecordedSGLang recomputes what a real SGLang published: plain
// prefixes, salted ones, and those of a registered LoRA, whose extra key is in
// no event. An extra key of another kind leaves no trace in this format.
func TestHashRecordedSGLang(t *testing.T) {
	extraKeys := map[string]string{}
	rec := loadRecording(t, "sglang_v0.5.23_rust_p16")
	for _, s := range rec.Steps {
		if p, ok := s.(Publish); ok {
			for _, ev := range decodeBatch(t, p.Payload).Events {
				if ev.LoRAName != "" {
					extraKeys[ev.LoRAName] = "lora:abababababababababababababababab"
				}
			}
		}
	}
	h := newHasher(HashSGLang, "", false)
	known := map[Hash]*prefix{}
	checked := map[string]int{}
	for _, s := range rec.Steps {
		p, ok := s.(Publish)
		if !ok {
			continue
		}
		for _, ev := range decodeBatch(t, p.Payload).Events {
			if ev.Kind != Stored {
				continue
			}
			scope := h.scope(extraKeys[ev.LoRAName], ev.Salt, 0)
			var at *prefix
			if ev.HasParent {
				if at = known[ev.Parent]; at == nil {
					t.Fatalf("batch %d has an unknown parent %v", p.Seq, ev.Parent)
				}
			}
			for i, want := range ev.Hashes {
				at = h.next(scope, at, slices.Clone(ev.Tokens[i*ev.BlockSize:(i+1)*ev.BlockSize]))
				if at.hash.Engine() != want.Engine() {
					t.Fatalf("batch %d, block %d with LoRA %q, salt %q: got %v, want %v", p.Seq, i, ev.LoRAName, ev.Salt, at.hash, want)
				}
				known[want] = at
				checked[ev.LoRAName+"/"+ev.Salt]++
			}
		}
	}
	t.Logf("checked %v", checked)
	if len(checked) < 3 || len(extraKeys) != 1 {
		t.Errorf("checked %v with LoRAs %v", checked, extraKeys)
	}
}
