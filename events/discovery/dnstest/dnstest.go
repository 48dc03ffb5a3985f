// Package dnstest is a DNS server for tests: it answers over UDP on the
// loopback interface what it is told to, fails as it is told to, and ends with
// the test.
package dnstest

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Mode is how questions are answered.
type Mode int

// The modes.
const (
	Answer Mode = iota
	ServFail
	Silent  // as if the server were down
	OnlyIP4 // questions about IPv6 addresses fail
)

// SRV is one record of a name.
type SRV struct {
	Target string
	Port   uint16
}

// Server is a running server. All methods are safe for concurrent use.
type Server struct {
	Addr string // HOST:PORT

	conn net.PacketConn
	done chan struct{}

	mu    sync.Mutex
	mode  Mode
	addrs map[string][]netip.Addr
	srv   map[string][]SRV
	asked map[string]int
}

// Start starts a server that knows no name.
func Start(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Addr: conn.LocalAddr().String(), conn: conn, done: make(chan struct{}),
		addrs: map[string][]netip.Addr{}, srv: map[string][]SRV{}, asked: map[string]int{},
	}
	go s.run()
	t.Cleanup(func() {
		_ = conn.Close()
		<-s.done
	})
	return s
}

// Set makes name have the addresses, and no others. Without any it exists all
// the same.
func (s *Server) Set(name string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []netip.Addr{}
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	s.addrs[fqdn(name)] = list
}

// SetSRV makes name have the records, and no others.
func (s *Server) SetSRV(name string, records ...SRV) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.srv[fqdn(name)] = records
}

// Delete makes name one that does not exist.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.addrs, fqdn(name))
	delete(s.srv, fqdn(name))
}

// SetMode changes how questions are answered.
func (s *Server) SetMode(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

// Asked is how many questions about name have come.
func (s *Server) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[fqdn(name)]
}

func fqdn(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

func (s *Server) run() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		if answer, ok := s.answer(q); ok {
			_, _ = s.conn.WriteTo(answer, from) // whoever asked asks again
		}
	}
}

func (s *Server) answer(q dnsmessage.Message) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	question := q.Questions[0]
	name := strings.ToLower(question.Name.String())
	s.asked[name]++
	a := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true, RecursionDesired: q.RecursionDesired, RecursionAvailable: true},
		Questions: q.Questions,
	}
	switch {
	case s.mode == Silent:
		return nil, false
	case s.mode == ServFail, s.mode == OnlyIP4 && question.Type == dnsmessage.TypeAAAA:
		a.RCode = dnsmessage.RCodeServerFailure
	default:
		s.records(&a, question, name)
	}
	b, err := a.Pack()
	return b, err == nil
}

func (s *Server) records(a *dnsmessage.Message, question dnsmessage.Question, name string) {
	addrs, hasAddrs := s.addrs[name]
	records, hasSRV := s.srv[name]
	if !hasAddrs && !hasSRV {
		a.RCode = dnsmessage.RCodeNameError
		return
	}
	add := func(body dnsmessage.ResourceBody) {
		a.Answers = append(a.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: dnsmessage.ClassINET, TTL: 1}, Body: body,
		})
	}
	for _, addr := range addrs {
		switch {
		case question.Type == dnsmessage.TypeA && addr.Is4():
			add(&dnsmessage.AResource{A: addr.As4()})
		case question.Type == dnsmessage.TypeAAAA && addr.Is6():
			add(&dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	if question.Type != dnsmessage.TypeSRV {
		return
	}
	for _, r := range records {
		add(&dnsmessage.SRVResource{Target: dnsmessage.MustNewName(fqdn(r.Target)), Port: r.Port})
	}
}
