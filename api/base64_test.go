package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// base64Reference decodes with encoding/base64 what base64Tokens should.
func base64Reference(text []byte) (tokens []uint32, ok bool) {
	for pad := 0; pad < 2 && len(text) > 0 && text[len(text)-1] == '='; pad++ {
		text = text[:len(text)-1]
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		b := make([]byte, enc.DecodedLen(len(text)))
		n, err := enc.Decode(b, text)
		if err != nil || n != len(b) || len(text)%4 == 1 || n%4 != 0 {
			continue
		}
		for i := 0; i < n; i += 4 {
			tokens = append(tokens, binary.LittleEndian.Uint32(b[i:]))
		}
		return tokens, true
	}
	return nil, false
}

// checkBase64 compares with the reference.
func checkBase64(t *testing.T, text []byte) {
	t.Helper()
	var s scanner
	s.reset(slices.Concat([]byte{'"'}, text, []byte{'"'}))
	got, err := s.base64Tokens("f", nil, 1<<20)
	want, ok := base64Reference(text)
	if ok != (err == nil) || ok && !slices.Equal(got, want) {
		t.Errorf("%q: %v, %v; want %v, %v", text, got, err, want, ok)
	}
	if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
		t.Errorf("%q: %v", text, err)
	}
}

// TestBase64Reference: every length and padding, both alphabets, and every byte
// in every place, as encoding/base64 has it.
func TestBase64Reference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			checkBase64(t, enc.AppendEncode(nil, raw))
		}
	}
	whole := base64.StdEncoding.AppendEncode(nil, make([]byte, 60))
	for at := range whole {
		for c := range 256 {
			if c == '"' || c == '\\' {
				continue // the frame of the string is not decided here
			}
			text := slices.Clone(whole)
			text[at] = byte(c)
			checkBase64(t, text)
		}
	}
	mixed := slices.Clone(whole)
	mixed[3], mixed[40] = '+', '_'
	checkBase64(t, mixed)
}

// FuzzBase64 compares with encoding/base64.
func FuzzBase64(f *testing.F) {
	f.Add([]byte("AQAAAP////8="))
	f.Add([]byte("AQAAAP____8AQAAAP____8AQAAAP____8"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if slices.ContainsFunc(text, func(c byte) bool { return c == '"' || c == '\\' }) {
			return
		}
		checkBase64(t, text)
	})
}
