package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
)

// SourceDNS is the Source of instances that DNS found.
const SourceDNS = "dns"

// Defaults of Name and DNS.
const (
	DefaultInterval = 5 * time.Second
	DefaultMisses   = 3
)

// Name is a name whose addresses are instances: a headless service's. A name
// that begins with _ is asked for SRV records (_events._tcp.vllm.default.svc):
// each target is an instance.
type Name struct {
	Name       string
	Model      string   // what the instances serve; "": each engine says, which needs URLPort
	ServedAs   []string // other names by which the engines may call the model
	Port       int      // of events, rank 0; 0: the SRV record's, else what the engine says
	ReplayPort int      // likewise of replays; 0: there are none, or what the engine says where Port is 0
	Ranks      int      // data-parallel ranks at consecutive ports; default 1
	URLPort    int      // of the engine's HTTP server; 0: the engine is not asked
	BlockSize  int      // 0: learnt
	Tenant     string
	Interval   time.Duration // between two questions; default DefaultInterval
	Server     string        // HOST:PORT of a DNS server; "": the system's
}

// Validate reports everything that is wrong.
func (n Name) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n.Name == "" || strings.ContainsAny(n.Name, "/: ") {
		bad("name: %q is no host name", n.Name)
	}
	for _, p := range []struct {
		name string
		port int
	}{{"port", n.Port}, {"replay_port", n.ReplayPort}, {"url_port", n.URLPort}} {
		if p.port < 0 || p.port > 65535 {
			bad("%s: %d is not in 1..65535", p.name, p.port)
		}
	}
	if n.Port == 0 && n.URLPort == 0 && !n.srv() {
		bad("neither port nor url_port is given: one of them says where the events are")
	}
	if n.Port == 0 && n.ReplayPort != 0 && !n.srv() {
		bad("replay_port is given without port")
	}
	if n.Model == "" && n.URLPort == 0 {
		bad("neither model nor url_port is given: one of them says what is served")
	}
	if n.Ranks < 0 || n.Ranks > 4096 {
		bad("dp_ranks: %d is not in 1..4096", n.Ranks)
	} else if n.Port > 0 {
		replay := ""
		if n.ReplayPort > 0 {
			replay = fmt.Sprintf("tcp://h:%d", n.ReplayPort)
		}
		if _, err := Ranks(fmt.Sprintf("tcp://h:%d", n.Port), replay, max(n.Ranks, 1)); err != nil {
			errs = append(errs, err)
		}
	}
	if n.Interval != 0 && n.Interval < 100*time.Millisecond {
		bad("interval: %v is less than 100ms", n.Interval)
	}
	return errors.Join(errs...)
}

func (n Name) srv() bool { return strings.HasPrefix(n.Name, "_") }

// DNS follows the instances behind names, as long as the names lead to them. An
// instance is given up when Misses answers in a row do not have it; a question
// that is not answered says nothing about it.
type DNS struct {
	Fleet  *events.Fleet
	Client *http.Client // for engines that are asked
	Logger *slog.Logger
	Lookup func(server string) Lookup // nil: net.Resolver
	Misses int                        // 0: DefaultMisses

	mu    sync.Mutex // of names
	names []*watched
	wg    sync.WaitGroup
}

// watched returns the names that are asked for.
func (d *DNS) watched() []*watched {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clip(d.names)
}

// Lookup asks a DNS server; a *net.Resolver does.
type Lookup interface {
	addrLookup
	srvLookup
}

// watched is a name and what it leads to.
type watched struct {
	Name
	dns    *DNS
	lookup Lookup
	log    *slog.Logger

	mu       sync.Mutex
	answered bool             // once at least
	failing  string           // why there was no answer last
	targets  map[string]*host // by instance id
	counts   LookupCounts
}

// LookupCounts counts the questions about a name.
type LookupCounts struct{ Answered, Failed uint64 }

// Start begins to ask. It ends with ctx; Wait waits for that. Instances go on
// being followed then.
func (d *DNS) Start(ctx context.Context, names []Name) {
	for _, n := range names {
		if n.Interval == 0 {
			n.Interval = DefaultInterval
		}
		n.Ranks = max(n.Ranks, 1)
		lookup := d.Lookup
		if lookup == nil {
			lookup = resolver
		}
		w := &watched{
			Name: n, dns: d, lookup: lookup(n.Server), log: d.Logger.With("dns", n.Name),
			failing: "not answered yet", targets: map[string]*host{},
		}
		d.mu.Lock()
		d.names = append(d.names, w)
		d.mu.Unlock()
		d.wg.Go(func() { w.run(ctx) })
	}
}

// Wait returns when nothing is asked any more.
func (d *DNS) Wait() { d.wg.Wait() }

// Waiting says which names have not been answered yet, and which of their
// instances cannot be followed yet, and why. Those that are refused for good
// reasons are not awaited.
func (d *DNS) Waiting() []string {
	var out []string
	for _, w := range d.watched() {
		w.mu.Lock()
		if !w.answered {
			out = append(out, "dns "+w.Name.Name+": "+w.failing)
		}
		for id, h := range w.targets {
			if state, why := h.status(); state == hostAsked {
				out = append(out, id+": "+why)
			}
		}
		w.mu.Unlock()
	}
	return out
}

// NameReport says how a name is doing.
type NameReport struct {
	Name    string
	Lookups LookupCounts
	Hosts   map[string]int    // by state: followed, asked (it does not say yet what it is), refused, missing (from the last answers)
	Refused map[string]string // why, by instance
}

// Report says how every name is doing.
func (d *DNS) Report() []NameReport {
	var out []NameReport
	for _, w := range d.watched() {
		w.mu.Lock()
		r := NameReport{
			Name: w.Name.Name, Lookups: w.counts, Refused: map[string]string{},
			Hosts: map[string]int{string(hostFollowed): 0, string(hostAsked): 0, string(hostRefused): 0, "missing": 0},
		}
		for id, h := range w.targets {
			state, why := h.status()
			r.Hosts[string(state)]++
			if state == hostRefused {
				r.Refused[id] = why
			}
			if h.missed > 0 {
				r.Hosts["missing"]++
			}
		}
		w.mu.Unlock()
		out = append(out, r)
	}
	return out
}

// run asks until ctx ends.
func (w *watched) run(ctx context.Context) {
	defer func() {
		for _, h := range w.targets {
			h.stop()
		}
	}()
	for {
		actx, cancel := context.WithTimeout(ctx, lookupTimeout)
		a := w.ask(actx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.take(ctx, a)
		jitter := time.Duration(rand.Int64N(int64(w.Interval)/5 + 1))
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.Interval - jitter/2):
		}
	}
}

// take does what an answer says: begins to follow, and gives up.
func (w *watched) take(ctx context.Context, a found) {
	w.note(a)
	misses := w.dns.Misses
	if misses <= 0 {
		misses = DefaultMisses
	}
	var gone []*host
	w.mu.Lock()
	for id, h := range w.targets {
		at, there := a.hosts[id]
		switch {
		case there && !slices.Contains(at.addrs, h.addr):
			gone = append(gone, h) // the host has moved: what was there is over
		case there:
			h.missed = 0
		case a.silentAbout(h):
		default:
			if h.missed++; h.missed >= misses {
				gone = append(gone, h)
			}
		}
	}
	for _, h := range gone {
		delete(w.targets, h.id)
	}
	w.mu.Unlock()
	for _, h := range gone {
		h.stop()
		h.giveUp()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, at := range a.hosts {
		if w.targets[id] == nil {
			w.targets[id] = newHost(ctx, w, id, at)
		}
	}
}

// note keeps and says, once, what became of a question.
func (w *watched) note(a found) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.err == nil {
		if !w.answered && len(a.hosts) == 0 {
			w.log.Warn("the name leads to nothing yet")
		}
		w.counts.Answered++
		if w.failing != "" && w.answered {
			w.log.Info("the name is answered again")
		}
		w.answered, w.failing = true, ""
		return
	}
	w.counts.Failed++
	if msg := a.err.Error(); msg != w.failing {
		w.failing = msg
		w.log.Warn("cannot look a name up; what it led to is followed on", "error", msg)
	}
}
