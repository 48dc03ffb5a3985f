package main_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxyMode is what a proxy does with what it is given.
type proxyMode int

const (
	passing   proxyMode = iota
	stalled             // nothing is read: what is on the way waits
	blackhole           // everything is swallowed, and no connection ever ends
	halfOpen            // the far side is gone, and the near one is not told
	refusing            // no connection is accepted, all that were have been reset
)

// proxy is a TCP proxy on the loopback interface that can be told to misbehave.
type proxy struct {
	t      testing.TB
	lis    net.Listener
	target string

	mu      sync.Mutex
	mode    proxyMode
	delay   time.Duration // of everything, on its way to either side
	changed chan struct{} // closed when mode changes
	links   map[*proxyLink]bool
	wg      sync.WaitGroup
}

// proxyLink is a connection through a proxy.
type proxyLink struct{ near, far net.Conn }

func (l *proxyLink) close() {
	_ = l.near.Close()
	_ = l.far.Close()
}

// startProxy listens on a free port for target, HOST:PORT with or without tcp://.
func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, lis: lis, target: strings.TrimPrefix(target, "tcp://"), changed: make(chan struct{}), links: map[*proxyLink]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = lis.Close()
		p.set(refusing)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string     { return p.lis.Addr().String() }
func (p *proxy) endpoint() string { return "tcp://" + p.addr() }

// set changes what the proxy does, also with the connections that it has.
// Leaving blackhole or halfOpen ends these: their streams have holes.
func (p *proxy) set(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	broken := p.mode == blackhole || p.mode == halfOpen
	p.mode = mode
	for l := range p.links {
		switch {
		case mode == refusing || mode == passing && broken:
			if c, ok := l.near.(*net.TCPConn); ok {
				_ = c.SetLinger(0) // a reset
			}
			l.close()
		case mode == halfOpen:
			_ = l.far.Close()
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// cut resets all connections; new ones are accepted.
func (p *proxy) cut() {
	p.set(refusing)
	p.set(passing)
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *proxy) state() (proxyMode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.delay, p.changed
}

func (p *proxy) accept() {
	for {
		near, err := p.lis.Accept()
		if err != nil {
			return // closed
		}
		mode, _, _ := p.state()
		far := net.Conn(&net.TCPConn{}) // none: all it does is fail
		if mode == refusing {
			_ = near.Close()
			continue
		}
		if mode != halfOpen {
			if far, err = net.DialTimeout("tcp", p.target, time.Second); err != nil {
				_ = near.Close()
				continue
			}
		}
		l := &proxyLink{near, far}
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(l, near, far) })
		p.wg.Go(func() { p.copy(l, far, near) })
	}
}

// copy moves what from says to the other side, as far as the mode lets it.
func (p *proxy) copy(l *proxyLink, from, to net.Conn) {
	defer func() {
		mode, _, _ := p.state()
		if mode == blackhole || mode == halfOpen {
			return // nobody is told; the end comes with the mode's
		}
		l.close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		mode, delay, changed := p.state()
		for mode == stalled {
			<-changed
			mode, delay, changed = p.state()
		}
		if mode == passing && n > 0 {
			time.Sleep(delay)
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
