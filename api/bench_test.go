package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer"
)

// sink is a ResponseWriter that keeps nothing.
type sink struct {
	header http.Header
	status int
	n      int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.n += len(b); return len(b), nil }

// BenchmarkQuery goes through the whole handler: body, decode, hash, match,
// response; only the network is missing. Eight pods hold prefixes of different
// length.
func BenchmarkQuery(b *testing.B) {
	for _, blocks := range []int{632, 6250} {
		r := newRig(b)
		p := prompt(blocks*16, 1)
		for pod := range 8 {
			id := fmt.Sprintf("pod-%d", pod)
			r.live(id)
			r.store(id, 0, indexer.GPU, p[:len(p)*(pod+1)/8/16*16])
		}
		bodies := []struct{ name, body string }{
			{"json", `{"model":"` + testModel + `","token_ids":` + tokensJSON(p) + `}`},
			{"base64", `{"model":"` + testModel + `","token_ids_b64":"` + tokensB64(p) + `"}`},
		}
		for _, body := range bodies {
			b.Run(fmt.Sprintf("%s/blocks=%d", body.name, blocks), func(b *testing.B) {
				benchmarkBody(b, r, body.body)
			})
		}
	}
}

// BenchmarkQuery64Pods is a query of 632 blocks that every one of 64 pods
// holds a part of: most of it is the response.
func BenchmarkQuery64Pods(b *testing.B) {
	r := newRig(b)
	p := prompt(632*16, 1)
	for pod := range 64 {
		id := fmt.Sprintf("pod-%02d", pod)
		r.live(id)
		r.store(id, 0, indexer.GPU, p[:len(p)*(pod+1)/64/16*16])
	}
	benchmarkBody(b, r, `{"model":"`+testModel+`","token_ids_b64":"`+tokensB64(p)+`"}`)
}

func benchmarkBody(b *testing.B, r *rig, body string) {
	h := r.srv.Handler()
	in := []byte(body)
	req := httptest.NewRequest(http.MethodPost, "/v1/query", nil)
	req.ContentLength = int64(len(in))
	w := &sink{header: http.Header{}}
	var reader bytes.Reader
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		reader.Reset(in)
		req.Body = io.NopCloser(&reader)
		h.ServeHTTP(w, req)
		if w.status != http.StatusOK {
			b.Fatalf("status %d", w.status)
		}
	}
}

// reportCPU reports the processor time from now until its result is called.
func reportCPU(b *testing.B) func() {
	before := cpuTime(b)
	return func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }
}

// cpuTime is the processor time of this process: on a machine that does other
// things too it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTokens is the parsing alone.
func BenchmarkTokens(b *testing.B) {
	p := prompt(632*16, 1)
	for name, body := range map[string]string{"json": tokensJSON(p), "json-spaced": strings.ReplaceAll(tokensJSON(p), ",", ", ")} {
		b.Run(name, func(b *testing.B) {
			body := []byte(body)
			var s scanner
			var dst []uint32
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				s.reset(body)
				var err error
				if dst, err = s.tokens("token_ids", dst, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("base64", func(b *testing.B) {
		body := []byte(`"` + tokensB64(p) + `"`)
		var s scanner
		var dst []uint32
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		defer reportCPU(b)()
		for b.Loop() {
			s.reset(body)
			var err error
			if dst, err = s.base64Tokens("token_ids_b64", dst, 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
}
