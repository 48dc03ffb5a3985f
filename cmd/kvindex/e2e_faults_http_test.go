package main_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvindex/kvindex/events/enginesim"
)

// malformed is fault 26: requests that are none, and prompts of a million tokens.
func malformed(f *faultRun) {
	s := f.serve("")
	p := f.pod("pod-0", enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 1000}, Seed: f.rand.Uint64()}).follow(s)
	prompt := p.work(5)
	f.live(s, p)
	requests := []string{
		"", "\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("A", 100_000),
		"GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-H: "+strings.Repeat("y", 100)+"\r\n", 1000) + "\r\n",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
		"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{{{",
		"DELETE /v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /v1/instances/%00%ff%2e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	}
	f.inject("%d malformed requests, prompts of 1M tokens", len(requests))
	codes := map[string]int{}
	for _, r := range requests {
		codes[f.raw(s, r)]++
	}
	f.see("%v", codes)
	for code := range codes {
		if strings.HasPrefix(code, "5") && code != "505" && code != "501" || code == "200" {
			f.Errorf("a malformed request is answered with %s", code)
		}
	}
	long := append(append([]uint32{}, prompt...), make([]uint32, 1_000_000-len(prompt))...)
	b := make([]byte, 0, 4*len(long))
	var list strings.Builder
	for _, t := range long {
		b = append(b, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
		fmt.Fprintf(&list, "%d,", t)
	}
	for _, body := range []string{
		`{"model":"m","token_ids_b64":"` + base64.StdEncoding.EncodeToString(b) + `"}`,
		`{"model":"m","token_ids":[` + strings.TrimSuffix(list.String(), ",") + `]}`,
	} {
		code, text := s.do(http.MethodPost, "/v1/query", body)
		want := fmt.Sprintf(`"matched_tokens":%d,`, len(prompt)/16*16)
		if code != http.StatusOK || !strings.Contains(text, want) || !strings.Contains(text, `"prompt_tokens":1000000`) {
			f.Errorf("a prompt of 1M tokens: %d %.300s", code, text)
		}
	}
	code, _ := s.do(http.MethodPost, "/v1/query", `{"model":"m","token_ids":[`+strings.Repeat("1,", 5_000_000)+`1]}`)
	f.see("1M tokens matched, 5M refused with %d", code)
	if code != http.StatusRequestEntityTooLarge {
		f.Errorf("a body of 10 MB: %d", code)
	}
	if strings.Contains(s.log.String(), "panic") {
		f.Error("something panicked")
	}
	f.live(s, p)
}

// raw sends bytes and returns the status of the answer, or that there was none.
func (f *faultRun) raw(s *server, request string) string {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	f.check(err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(faultWait))
	_, _ = io.WriteString(c, request) // it may be refused in the middle
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	b, err := io.ReadAll(c)
	if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
		f.Errorf("a connection stays open after %.50q", request)
	}
	if fields := strings.Fields(string(b)); len(fields) > 1 {
		return fields[1]
	}
	return "closed"
}

// idleClients is fault 27: thousands of connections that never finish a request.
func idleClients(f *faultRun) {
	const clients = 5000
	s := f.serve("")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	prompt := p.work(5)
	f.live(s, p)
	goroutines := s.metric("go_goroutines ")
	f.inject("%d connections: half say nothing, half never end a header", clients)
	var conns []net.Conn
	for i := range clients {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		f.check(err)
		defer c.Close()
		if i%2 == 0 {
			_, err := io.WriteString(c, "POST /v1/query HTTP/1.1\r\nHost: x\r\nX-Slow: ")
			f.check(err)
		}
		conns = append(conns, c)
	}
	most := 0.0
	for range 20 {
		most = max(most, s.metric("go_goroutines "))
		if n, state := p.matched(s, prompt); n == 0 || state != "exact" {
			f.Errorf("meanwhile %d blocks match, the answer is %s", n, state)
		}
	}
	f.see("queries answered beside %.0f goroutines", most)
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(faultWait))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			f.Fatal("a connection is still open")
		}
	}
	s.within(faultWait, func() string {
		if n := s.metric("go_goroutines "); n > goroutines+50 {
			return fmt.Sprintf("%.0f goroutines, %.0f before", n, goroutines)
		}
		return ""
	})
	f.live(s, p)
	f.see("all closed by timeouts")
}

// tokens is fault 28: no token, or a wrong one.
func tokens(f *faultRun) {
	write := func(name, text string) string {
		file := filepath.Join(f.TempDir(), name)
		f.check(os.WriteFile(file, []byte(text+"\n"), 0o600))
		return file
	}
	user := write("token", "u-secret")
	s := f.serve(fmt.Sprintf("api: {token_file: %s, admin_token_file: %s}", user, write("admin", "a-secret")))
	ask := func(method, path, token string) int {
		req, err := http.NewRequestWithContext(f.Context(), method, s.url+path, strings.NewReader("{}"))
		f.check(err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		f.check(err)
		resp.Body.Close()
		return resp.StatusCode
	}
	f.inject("no token, wrong ones, the wrong one of two, one that was replaced")
	routes := map[string]string{
		"/v1/query": "POST", "/query": "POST", "/query_by_hash": "POST", "/lookup": "POST", "/register": "POST", "/unregister": "POST",
		"/v1/explain": "POST", "/v1/instances": "GET", "/v1/stats": "GET", "/v1/models": "GET", "/workers": "GET", "/v1/dump": "GET",
		"/v1/snapshot": "GET", "/tokenize": "POST", "/metrics": "GET", "/v1/instances/x/clear": "POST",
	}
	refused := 0
	for path, method := range routes {
		for _, token := range []string{"", "wrong", "u-secre", "u-secrets", "U-SECRET"} {
			if code := ask(method, path, token); code != http.StatusUnauthorized {
				f.Errorf("%s %s with token %q: %d", method, path, token, code)
			}
			refused++
		}
		admin := strings.HasSuffix(path, "dump") || strings.HasSuffix(path, "snapshot") || strings.HasSuffix(path, "clear")
		if code := ask(method, path, "u-secret"); (code == http.StatusForbidden) != admin || code == http.StatusUnauthorized {
			f.Errorf("%s %s with the user's token: %d", method, path, code)
		}
		if code := ask(method, path, "a-secret"); code == http.StatusUnauthorized || code == http.StatusForbidden {
			f.Errorf("%s %s with the admin's token: %d", method, path, code)
		}
	}
	f.check(os.WriteFile(user, []byte("new-secret\n"), 0o600))
	f.until("the old token is still good", func() bool {
		return ask("GET", "/v1/stats", "u-secret") == http.StatusUnauthorized && ask("GET", "/v1/stats", "new-secret") == http.StatusOK
	})
	f.recovered()
	f.see("%d times 401, 403 for admin routes", refused)
	if log := s.log.String(); strings.Contains(log, "secret") {
		f.Error("a token is in the log")
	}
}

// salts is fault 29: what salts keep apart stays apart, and nothing of a prompt
// is written anywhere.
func salts(f *faultRun) {
	s := f.serve("log: {level: debug}")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	f.inject("salted prompts, and errors that might quote them")
	prompt := make([]uint32, 64)
	for i := range prompt {
		prompt[i] = 1_234_567_890 + uint32(i%10)
	}
	for _, salt := range []string{"salt-Ada-7341", "salt-Bob-7341"} {
		_, err := p.Rank(0).Run(enginesim.Request{Tokens: append([]uint32{}, prompt[:48]...), Salt: salt})
		f.check(err)
		_, err = p.Rank(0).Run(enginesim.Request{Tokens: append([]uint32{uint32(len(salt))}, randomPrompt(f.rand, 40)...), Salt: salt})
		f.check(err)
	}
	_, err := p.Rank(0).Run(enginesim.Request{Tokens: prompt, Salt: "salt-Ada-7341"})
	f.check(err)
	f.live(s, p)
	for salt, want := range map[string]int{"salt-Ada-7341": 64, "salt-Bob-7341": 48, "salt-Eve-7341": 0, "": 0, "salt-ada-7341": 0} {
		body := map[string]any{"model": "m", "token_ids": prompt}
		if salt != "" {
			body["cache_salt"] = salt
		}
		if n := s.query(body).Instances["pod-0"].Matched; n != want {
			f.Errorf("with salt %q %d tokens match, want %d", salt, n, want)
			f.row.Wrong += max(0, n-want) / 16
		}
	}
	f.see("hits only under their own salt")
	_, err = p.Rank(0).Stream().Poison(enginesim.BadPayload, []byte("\x93\xcb12345678prompt-7341 1234567890"))
	f.check(err)
	for _, body := range []string{
		`{"model":"m","prompt":"prompt-7341"}`, `{"model":"m","messages":[{"role":"user","content":"prompt-7341"}]}`,
		`{"model":"m","token_ids":[1234567890,"prompt-7341"]}`, `{"model":"m","token_ids":[1234567890`, `{"model":"m","cache_salt":7341,"token_ids":[1234567890]}`,
		`{"model":"m","prompt":"prompt-7341","prompt":7341}`, `{"model":"prompt-7341x","cache_salt":"salt-Ada-7341","token_ids":[1234567890]}`,
		`{"model":"m","token_ids":[99999999999,1234567890]}`, `{"model":"m","token_ids_b64":"cHJvbXB0LTczNDE"}`,
	} {
		_, text := s.do(http.MethodPost, "/v1/query", body)
		_, more := s.do(http.MethodPost, "/tokenize", body)
		for _, secret := range []string{"salt-", "1234567890"} {
			if strings.Contains(text+more, secret) {
				f.Errorf("an answer to %s quotes it: %s %s", body, text, more)
			}
		}
	}
	p.is(s, "degraded", "poison")
	_, metrics := s.do(http.MethodGet, "/metrics", "")
	for _, secret := range []string{"7341", "1234567890", "12345678"} {
		if strings.Contains(s.log.String()+metrics, secret) {
			f.Errorf("the log or the metrics contain %s", secret)
		}
	}
	f.see("none in %d bytes of log and metrics", len(s.log.String())+len(metrics))
	f.check(p.Rank(0).Clear())
	p.work(2)
	f.live(s, p)
}

// termination is fault 31: SIGTERM under load fails no request.
func termination(f *faultRun) {
	s := f.serve("", "KVINDEX_API_DRAIN_TIME=2s")
	p := f.pod("pod-0", podOptions(f)).follow(s)
	prompt := p.work(5)
	f.live(s, p)
	var ended atomic.Bool // clients have heard that it is not ready
	var sent, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		client := &http.Client{Timeout: faultWait, Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
		wg.Go(func() {
			defer client.CloseIdleConnections()
			for !ended.Load() {
				resp, err := client.Post(s.url+"/v1/query", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"m","token_ids":[%d]}`, prompt[0])))
				sent.Add(1)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					failed.Add(1)
					f.did("a request failed: %v", err)
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	f.inject("SIGTERM under the load of 8 clients, who stop when they see /readyz fail")
	f.check(s.cmd.Process.Signal(syscall.SIGTERM))
	s.within(faultWait, func() string {
		if code, _ := s.do(http.MethodGet, "/readyz", ""); code != http.StatusServiceUnavailable {
			return fmt.Sprintf("/readyz is %d", code)
		}
		return ""
	})
	time.Sleep(500 * time.Millisecond) // as slow as load balancers are
	ended.Store(true)
	wg.Wait()
	err := s.cmd.Wait()
	f.recovered()
	f.see("%d requests, %d failed; then exit: %v", sent.Load(), failed.Load(), s.cmd.ProcessState)
	if failed.Load() > 0 || err != nil {
		f.Errorf("%d requests failed, kvindex ended with %v", failed.Load(), err)
	}
}
