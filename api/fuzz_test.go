package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"slices"
	"testing"
)

// FuzzQueryBody: whatever arrives, the decoder answers or says what is wrong,
// and it agrees with encoding/json on what is JSON and on what the tokens are.
func FuzzQueryBody(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","token_ids":[1,2,3],"candidates":["a",7],"tiers":["gpu"],"max_blocks":4,"explain":true}`,
		`{"model":"m","token_ids_b64":"AQAAAP////8="}`,
		`{"model":"m","seq_hashes":["18446744073709551615",1,-1,"0xff"],"block_size":16}`,
		`{"model":"m","block_hashes":[-1],"routing_group":"g","tenant_id":"default"}`,
		`{"model":"m","messages":[{"role":"user","content":"h\u00e9\ud83d\ude00"}],"tools":null,"n":1.5e3}`,
		`{"model":"m","prompt":[[1,2]]}`, `{"model":"m","prompt":["x"]}`, `{"prompt":[]}`,
		" {\t\"model\" : \"m\" ,\r\n\"token_ids\":[ 1 ,2 ] } ", `{"\u006dodel":"m"}`,
		`{`, `[]`, `{"token_ids":[1,`, `{"token_ids":[01]}`, `{"token_ids":[1e2]}`, `{"token_ids":[-0]}`, `{"a":{"b":1,"b":2}}`,
		"{\"model\":\"\xff\"}", `{"model":"m"}{}`, `{"token_ids":[99999999999999999999]}`, `{"candidates":[-]}`, `{"token_ids_b64":"A\nA"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var l Limits
		l = l.withDefaults()
		w := &work{body: slices.Clone(body)}
		w.q.reset()
		err := w.decode(false, &l)
		valid := jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true))
		if err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Status < 400 || e.Status >= 500 || e.Reason == "" {
				t.Fatalf("%v is no error for a caller", err)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is not JSON, and was decoded", body)
		}
		if w.q.source != sourceTokens || w.q.sourceName == "token_ids_b64" {
			return
		}
		var std struct {
			A *[]uint32      `json:"token_ids"`
			B *[]uint32      `json:"tokens"`
			P jsontext.Value `json:"prompt"`
		}
		if err := json.Unmarshal(body, &std, jsontext.AllowDuplicateNames(true)); err != nil {
			t.Fatalf("%q: encoding/json says %v", body, err)
		}
		var want []uint32
		switch {
		case std.A != nil:
			want = *std.A
		case std.B != nil:
			want = *std.B
		case json.Unmarshal(std.P, &want) != nil:
			var nested [][]uint32
			if err := json.Unmarshal(std.P, &nested); err != nil {
				t.Fatalf("%q: encoding/json says %v", body, err)
			}
			want = nested[0]
		}
		if !slices.Equal(want, w.q.tokens) {
			t.Fatalf("%q: tokens %v, encoding/json has %v", body, w.q.tokens, want)
		}
	})
}

// FuzzRegisterBody: the same for registrations.
func FuzzRegisterBody(f *testing.F) {
	for _, seed := range []string{
		`{"instance_id":"a","model":"m","endpoint":"tcp://1.1.1.1:5557","block_size":16,"dp_rank":0,"aliases":["b"]}`,
		`{"instance_id":7,"modelname":"m","routing_group":"g","additionalsalt":"s","type":null}`,
		`{"url":"http://10.0.0.7:8000"}`, `{"endpoint":"tcp://*:1"}`, `{"aliases":[`, `{"endpoint":"tcp://[::1%eth0]:1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s scanner
		s.reset(slices.Clone(body))
		r, err := s.decodeRegistration(false)
		if err == nil {
			err = checkRegistration(&r)
		}
		if err != nil {
			if e := toError(err); e.Status < 400 || e.Status >= 500 {
				t.Fatalf("%v is no error for a caller", err)
			}
		} else if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%q is not JSON, and was decoded", body)
		}
	})
}
