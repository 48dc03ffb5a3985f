package api

import (
	"encoding/json/v2"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvindex/kvindex/indexer"
)

// decoded is what tests compare of a decoded query.
type decoded struct {
	Model, Tenant, LoRA, Salt string
	Source                    source
	Tokens                    []uint32
	Seq                       []indexer.SeqHash
	Local                     []indexer.LocalHash
	BlockSize, MaxBlocks      int
	Candidates                []string
	Tier                      indexer.Tier
	Explain                   bool
}

// decodeBody decodes body with small limits.
func decodeBody(body string, strict bool) (decoded, error) {
	l := Limits{Tokens: 8, Blocks: 4, Candidates: 3}.withDefaults()
	w := &work{body: []byte(body)}
	w.q.reset()
	if err := w.decode(strict, &l); err != nil {
		return decoded{}, err
	}
	q := &w.q
	d := decoded{q.model, q.tenant, q.lora, q.salt, q.source, q.tokens, q.seq, q.local, q.blockSize, q.maxBlocks, nil, q.tier, q.explain}
	for _, c := range q.candidates {
		if c.number {
			c.name = "#" + c.name
		}
		d.Candidates = append(d.Candidates, c.name)
	}
	return d, nil
}

func TestDecodeQuery(t *testing.T) {
	f := func(body string, want decoded) {
		t.Helper()
		if !strings.Contains(body, "tiers") && !strings.Contains(body, "medium") {
			want.Tier = indexer.Disk // all of them
		}
		got, err := decodeBody(body, true)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		if d := cmp.Diff(want, got, cmp.Transformer("nil", func(s []uint32) []uint32 { return append([]uint32{}, s...) }),
			cmp.Transformer("nil", func(s []indexer.SeqHash) []indexer.SeqHash { return append([]indexer.SeqHash{}, s...) }),
			cmp.Transformer("nil", func(s []indexer.LocalHash) []indexer.LocalHash { return append([]indexer.LocalHash{}, s...) })); d != "" {
			t.Errorf("%s: %s", body, d)
		}
	}
	f(`{}`, decoded{})
	f(" \n{ \"model\" : \"m\" , \"token_ids\" : [ 1 , 2,3 ] }\n", decoded{Model: "m", Source: sourceTokens, Tokens: []uint32{1, 2, 3}})
	f(`{"model_name":"m","tokens":[0,4294967295]}`, decoded{Model: "m", Source: sourceTokens, Tokens: []uint32{0, 4294967295}})
	f(`{"modelname":"m","token_ids":[]}`, decoded{Model: "m", Source: sourceTokens})
	f(`{"\u006dodel":"caf\u00e9","token_ids":null}`, decoded{Model: "café"})
	f(`{"token_ids_b64":"AQAAAP////8="}`, decoded{Source: sourceTokens, Tokens: []uint32{1, 4294967295}})
	f(`{"token_ids_b64":"AQAAAP____8"}`, decoded{Source: sourceTokens, Tokens: []uint32{1, 4294967295}})
	f(`{"token_ids_b64":"AQAAAP\/\/\/\/8="}`, decoded{Source: sourceTokens, Tokens: []uint32{1, 4294967295}})
	f(`{"token_ids_b64":""}`, decoded{Source: sourceTokens})
	f(`{"seq_hashes":[18446744073709551615,"18446744073709551615","0xFF",-1]}`,
		decoded{Source: sourceSeqHashes, Seq: []indexer.SeqHash{1<<64 - 1, 1<<64 - 1, 255, 1<<64 - 1}})
	f(`{"block_hash":[1]}`, decoded{Source: sourceSeqHashes, Seq: []indexer.SeqHash{1}})
	f(`{"block_hashes":[1]}`, decoded{Source: sourceLocalHashes, Local: []indexer.LocalHash{1}})
	f(`{"local_hashes":["2"]}`, decoded{Source: sourceLocalHashes, Local: []indexer.LocalHash{2}})
	f(`{"prompt":"hello","max_tokens":5,"stream":true}`, decoded{Source: sourceText})
	f(`{"prompt":[1,2]}`, decoded{Source: sourceTokens, Tokens: []uint32{1, 2}})
	f(`{"prompt":[[1,2]]}`, decoded{Source: sourceTokens, Tokens: []uint32{1, 2}})
	f(`{"prompt":["hello"]}`, decoded{Source: sourceText})
	f(`{"prompt":[]}`, decoded{Source: sourceTokens})
	f(`{"messages":[{"role":"user","content":[{"type":"text","text":"}]"}]}],"tools":[],"chat_template_kwargs":{}}`, decoded{Source: sourceText})
	f(`{"tenant_id":"default","routing_group":"blue"}`, decoded{Tenant: "blue"})
	f(`{"tenant_id":"blue","routing_group":"default"}`, decoded{Tenant: "blue"})
	f(`{"cache_salt":"s","additional_salt":"s","lora_name":null}`, decoded{Salt: "s"})
	f(`{"candidates":["pod-1",7,"ns/pod"],"block_size":16,"max_blocks":3,"explain":true}`,
		decoded{Candidates: []string{"pod-1", "#7", "ns/pod"}, BlockSize: 16, MaxBlocks: 3, Explain: true})
	f(`{"instance_id":"pod-1"}`, decoded{Candidates: []string{"pod-1"}})
	f(`{"tiers":["gpu"]}`, decoded{Tier: indexer.GPU})
	f(`{"tiers":["cpu"]}`, decoded{Tier: indexer.CPU})
	f(`{"medium":["L3","L1"]}`, decoded{Tier: indexer.Disk})
}

func TestDecodeQueryErrors(t *testing.T) {
	f := func(body string, status int, code, field, in string) {
		t.Helper()
		_, err := decodeBody(body, true)
		if err == nil {
			t.Errorf("%s: no error", body)
			return
		}
		e := toError(err)
		if e.Status != status || e.Code != code || e.Field != field || !strings.Contains(e.Reason, in) {
			t.Errorf("%s: %d %s %q %q, want %d %s %q ...%s...", body, e.Status, e.Code, e.Field, e.Reason, status, code, field, in)
		}
	}
	malformed := func(body string, at int) {
		t.Helper()
		f(body, 400, codeMalformed, "", fmt.Sprintf("at byte %d", at))
	}
	malformed(``, 0)
	malformed(`[]`, 0)
	malformed(`{`, 1)
	malformed(`{"model"`, 8)
	malformed(`{"model":}`, 9)
	malformed(`{"model":"m"`, 12)
	malformed(`{"model":"m" "x":1}`, 13)
	malformed(`{"model":"m"}x`, 13)
	malformed(`{"model":"m",}`, 13)
	malformed(`{model:"m"}`, 1)
	malformed(`{"token_ids":[1`, 15)
	malformed(`{"token_ids":[1 2]}`, 16)
	malformed(`{"token_ids":[1,]}`, 16)
	malformed(`{"messages":[{]}`, 14)
	malformed("{\"model\":\"a\x01\"}", 11)

	f(`{"token_ids":[1,2.5]}`, 400, codeInvalid, "token_ids[1]", "token_ids[1] is not an integer in 0..4294967295")
	f(`{"token_ids":[1,2e3]}`, 400, codeInvalid, "token_ids[1]", "")
	f(`{"token_ids":[01]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":[-1]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":[4294967296]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":[99999999999999999999999]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":["1"]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":[null]}`, 400, codeInvalid, "token_ids[0]", "")
	f(`{"token_ids":"1"}`, 400, codeInvalid, "token_ids", "not an array")
	f(`{"prompt":[1,"x"]}`, 400, codeInvalid, "prompt[1]", "")
	f(`{"prompt":7}`, 400, codeInvalid, "prompt", "neither a text")
	f(`{"prompt":["a","b"]}`, 422, codeContradictory, "prompt", "/v1/query:batch")
	f(`{"token_ids":[1,2,3,4,5,6,7,8,9]}`, 413, codeTooLarge, "token_ids", "8 tokens")
	f(`{"token_ids_b64":"`+strings.Repeat("AAAA", 12)+`"}`, 413, codeTooLarge, "token_ids_b64", "")
	f(`{"token_ids_b64":"AQ=="}`, 400, codeInvalid, "token_ids_b64", "1 bytes")
	f(`{"token_ids_b64":"!!!!"}`, 400, codeInvalid, "token_ids_b64", "not base64")
	f("{\"token_ids_b64\":\"AQAA\nAP////8=\"}", 400, codeInvalid, "token_ids_b64", "not base64")
	f(`{"token_ids_b64":7}`, 400, codeInvalid, "token_ids_b64", "not a string")
	f(`{"seq_hashes":[1.5]}`, 400, codeInvalid, "seq_hashes[0]", "decimal string")
	f(`{"seq_hashes":["12a"]}`, 400, codeInvalid, "seq_hashes[0]", "")
	f(`{"seq_hashes":[18446744073709551616]}`, 400, codeInvalid, "seq_hashes[0]", "")
	f(`{"seq_hashes":[1,2,3,4,5]}`, 413, codeTooLarge, "seq_hashes", "4 hashes")
	f(`{"seq_hashes":{}}`, 400, codeInvalid, "seq_hashes", "not an array")
	f(`{"token_ids":[1],"prompt":"x"}`, 422, codeContradictory, "prompt", "both token_ids and prompt")
	f(`{"model":"a","model_name":"a"}`, 422, codeContradictory, "model_name", "twice")
	f(`{"tenant_id":"a","routing_group":"b"}`, 422, codeContradictory, "routing_group", "")
	f(`{"model":7}`, 400, codeInvalid, "model", "not a string")
	f(`{"candidates":["a","b","c","d"]}`, 413, codeTooLarge, "candidates", "")
	f(`{"candidates":[1.5]}`, 400, codeInvalid, "candidates[0]", "")
	f(`{"candidates":[""]}`, 400, codeInvalid, "candidates[0]", "empty")
	f(`{"candidates":"pod"}`, 400, codeInvalid, "candidates", "not an array")
	f(`{"max_blocks":-1}`, 400, codeInvalid, "max_blocks", "0..")
	f(`{"block_size":0}`, 400, codeInvalid, "block_size", "1..")
	f(`{"explain":"yes"}`, 400, codeInvalid, "explain", "true nor false")
	f(`{"tiers":["tape"]}`, 400, codeInvalid, "tiers[0]", `"tape"`)
	f(`{"tiers":[]}`, 400, codeInvalid, "tiers", "empty")
	f(`{"candidate":["a"]}`, 400, codeUnknownField, "candidate", "is candidates meant?")
	f(`{"zzz":1}`, 400, codeUnknownField, "zzz", `"zzz"`)
	if _, err := decodeBody(`{"zzz":1}`, false); err != nil {
		t.Errorf("an unknown field without strict: %v", err)
	}
}

// TestTokensAgree holds the fast parser against encoding/json.
func TestTokensAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	space := []string{"", "", "", " ", "\n\t", "\r\n  "}
	for range 2000 {
		want := make([]uint32, rnd.IntN(20))
		var sb strings.Builder
		sb.WriteString("[" + space[rnd.IntN(len(space))])
		for i := range want {
			want[i] = rnd.Uint32() >> rnd.IntN(32)
			if i > 0 {
				sb.WriteString(space[rnd.IntN(len(space))] + "," + space[rnd.IntN(len(space))])
			}
			fmt.Fprint(&sb, want[i])
		}
		sb.WriteString(space[rnd.IntN(len(space))] + "]")
		var s scanner
		s.reset([]byte(sb.String()))
		got, err := s.tokens("token_ids", nil, 100)
		if err != nil || s.end() != nil {
			t.Fatalf("%q: %v", sb.String(), err)
		}
		var std []uint32
		if err := json.Unmarshal([]byte(sb.String()), &std); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(std, append([]uint32{}, got...)); d != "" {
			t.Fatalf("%q: %s", sb.String(), d)
		}
	}
}

// TestLeadingUint: eight bytes at once give the same as one after the other.
func TestLeadingUint(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const after = ",] .eE-:/;0\x00\xff\xb0"
	for range 200000 {
		digits := strconv.FormatUint(rnd.Uint64()>>rnd.IntN(64), 10)
		digits = digits[:min(len(digits), 1+rnd.IntN(11))]
		if rnd.IntN(10) == 0 {
			digits = ""
		}
		in := digits
		for range rnd.IntN(12) {
			in += string(after[rnd.IntN(len(after))])
		}
		var want uint64
		n := 0
		for n < len(in) && in[n] >= '0' && in[n] <= '9' && n <= maxTokenDigits {
			want = want*10 + uint64(in[n]-'0')
			n++
		}
		if v, got := leadingUint([]byte(in)); v != want || got != n {
			t.Fatalf("%q: %d of %d digits, want %d of %d", in, v, got, want, n)
		}
	}
}

func TestParseHash(t *testing.T) {
	f := func(in string, want uint64, ok bool) {
		t.Helper()
		if got, gotOK := parseHash([]byte(in)); got != want || gotOK != ok {
			t.Errorf("%q: %d %v, want %d %v", in, got, gotOK, want, ok)
		}
	}
	f("0", 0, true)
	f("18446744073709551615", 1<<64-1, true)
	f("18446744073709551616", 0, false)
	f("99999999999999999999", 0, false)
	f("184467440737095516150", 0, false)
	f("-1", 1<<64-1, true)
	f("-9223372036854775808", 1<<63, true)
	f("-9223372036854775809", 0, false)
	f("0x0", 0, true)
	f("0XffFFffFFffFFffFF", 1<<64-1, true)
	f("0x10000000000000000", 0, false)
	f("0x", 0, false)
	f("0xg", 0, false)
	f("", 0, false)
	f("-", 0, false)
	f(" 1", 0, false)
	f("1a", 0, false)
}

func TestNearest(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := nearest(in, queryFieldNames()); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	f("token_id", "token_ids")
	f("tokens_ids", "token_ids")
	f("mesages", "messages")
	f("seq_hash", "seq_hashes")
	f("colour", "")
	f("", "")
	f(strings.Repeat("x", 10000), "")
}
