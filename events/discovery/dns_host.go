package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
)

// hostState is how far a host has got.
type hostState string

const (
	hostAsked    hostState = "asked" // it has not said yet what it is
	hostFollowed hostState = "followed"
	hostRefused  hostState = "refused"
)

// Pauses between two questions to an engine: verifyEvery where nothing points to
// another engine behind the address, lookEvery between looks at whether
// something does.
const (
	verifyEvery = time.Minute
	lookEvery   = 250 * time.Millisecond
)

// host is one address that a name leads to. Its goroutine has the engine
// describe itself, where there is a URL, follows it, and sees to it that it is
// still that engine: addresses are used again.
type host struct {
	id     string
	addr   netip.Addr
	name   string // of its SRV record
	port   int    // likewise
	of     *watched
	log    *slog.Logger
	missed int // answers in a row that do not have it; w.mu

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	state hostState
	why   string
	owned bool // the instance of this id is followed because of us
}

func newHost(ctx context.Context, w *watched, id string, at place) *host {
	ctx, cancel := context.WithCancel(ctx)
	h := &host{
		id: id, addr: at.addrs[0], name: at.name, port: at.port, of: w, log: w.log.With("instance", id),
		cancel: cancel, done: make(chan struct{}), state: hostAsked, why: "to be asked",
	}
	go func() {
		defer close(h.done)
		h.run(ctx)
	}()
	return h
}

// stop ends the goroutine. What is followed stays so.
func (h *host) stop() {
	h.cancel()
	<-h.done
}

// giveUp ends following, and drops what the instance holds. The goroutine has
// ended, or is the caller.
func (h *host) giveUp() {
	h.mu.Lock()
	owned := h.owned
	h.owned = false
	h.mu.Unlock()
	if owned && h.of.dns.Fleet.Remove(h.id, nil) {
		h.log.Info("an instance is followed no more: the name does not lead to it, or to another engine", "addr", h.addr)
	}
}

func (h *host) status() (state hostState, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.why
}

func (h *host) set(state hostState, why string) {
	h.mu.Lock()
	said := h.why
	h.state, h.why = state, why
	h.mu.Unlock()
	if why != "" && why != said {
		h.log.Warn("an instance that DNS names cannot be followed; trying again", "addr", h.addr, "state", string(state), "reason", why)
	}
}

func (h *host) run(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if h.follow(ctx) {
			h.watch(ctx)
			pause = firstPause / 2 // another engine: it may be the right one soon
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// follow begins to follow the host and reports whether that went well.
func (h *host) follow(ctx context.Context) bool {
	spec, err := h.spec()
	if err == nil && spec.URL != "" {
		spec, err = h.describe(ctx, spec)
	}
	if ctx.Err() != nil {
		return false
	}
	if wrong, ok := errors.AsType[*wrongModelError](err); ok {
		h.set(hostRefused, wrong.Error())
		return false
	}
	if err == nil {
		err = h.followedOtherwise(spec)
	}
	created := false
	if err == nil {
		created, err = h.of.dns.Fleet.Add(spec)
	}
	if err != nil {
		h.set(hostAsked, err.Error())
		return false
	}
	h.mu.Lock()
	h.owned = h.owned || created
	h.mu.Unlock()
	h.set(hostFollowed, "")
	h.log.Info("following an instance that DNS names", "addr", h.addr, "model", spec.Model, "dp_ranks", len(spec.Streams))
	return true
}

// spec is what DNS and the configuration tell of the host.
func (h *host) spec() (events.InstanceSpec, error) {
	w := h.of
	spec := events.InstanceSpec{ID: h.id, Model: w.Model, Tenant: w.Tenant, BlockSize: w.BlockSize, Source: SourceDNS}
	at := func(port int) string { return net.JoinHostPort(h.addr.String(), strconv.Itoa(port)) }
	if h.name != "" {
		spec.Aliases = podNames(h.name)
	}
	if w.URLPort != 0 {
		spec.URL = "http://" + at(w.URLPort)
	}
	port := w.Port
	if port == 0 {
		port = h.port
	}
	if port == 0 {
		return spec, nil // the engine says
	}
	replay := ""
	if w.ReplayPort != 0 {
		replay = "tcp://" + at(w.ReplayPort)
	}
	var err error
	spec.Streams, err = Ranks("tcp://"+at(port), replay, w.Ranks)
	return spec, err
}

// podNames are the names of a pod that routers may use instead of the one that
// Kubernetes gives it in DNS: POD.SERVICE.NAMESPACE.svc.ZONE.
func podNames(host string) []string {
	labels := strings.Split(host, ".")
	if len(labels) < 4 || labels[3] != "svc" {
		return nil
	}
	return []string{labels[0] + "." + labels[2]}
}

// wrongModelError says that an engine serves another model than it should.
type wrongModelError struct {
	url, want string
	served    []string
}

func (e *wrongModelError) Error() string {
	return fmt.Sprintf("refused: the engine at %s serves %s, not %s", e.url, strings.Join(e.served, ", "), e.want)
}

// describe has the engine tell what is missing in spec, and that it serves the
// model: that error is a *wrongModelError.
func (h *host) describe(ctx context.Context, spec events.InstanceSpec) (events.InstanceSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.verify(ctx, spec.URL, spec.Model); err != nil {
		return spec, err
	}
	return Describe(ctx, h.of.dns.Client, spec)
}

func (h *host) verify(ctx context.Context, url, model string) error {
	if model == "" {
		return nil
	}
	served, err := baseModels(ctx, h.of.dns.Client, url)
	if err != nil {
		return err
	}
	for _, m := range served {
		if m == model || slices.Contains(h.of.ServedAs, m) {
			return nil
		}
	}
	return &wrongModelError{url, model, served}
}

// followedOtherwise is an error if one of spec's streams is followed as another
// instance: its blocks would count twice.
func (h *host) followedOtherwise(spec events.InstanceSpec) error {
	for _, in := range h.of.dns.Fleet.Instances() {
		other := in.Spec()
		if other.ID == spec.ID {
			continue
		}
		for _, st := range other.Streams {
			if slices.ContainsFunc(spec.Streams, func(s events.StreamSpec) bool { return s.Endpoint == st.Endpoint }) {
				return fmt.Errorf("%s is followed as instance %q already", st.Endpoint, other.ID)
			}
		}
	}
	return nil
}

// watch returns when another engine is behind the address, which is then
// followed no more, or when ctx ends. The engine is asked when something points
// to a new process, and now and then. One that does not answer changes nothing.
func (h *host) watch(ctx context.Context) {
	in, ok := h.of.dns.Fleet.Find(h.id)
	if !ok || h.of.URLPort == 0 {
		<-ctx.Done() // restarts show in the stream, and that is all that can be known
		return
	}
	spec, asked, at := in.Spec(), time.Now(), contacts(in)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := contacts(in)
		if now == at && time.Since(asked) < verifyEvery {
			continue
		}
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := h.verify(actx, spec.URL, spec.Model)
		cancel()
		if wrong, ok := errors.AsType[*wrongModelError](err); ok {
			h.giveUp()
			h.set(hostRefused, wrong.Error())
			return
		}
		if err == nil {
			asked, at = time.Now(), now
		}
	}
}

// contacts grows with every connection to an instance and every new process
// that is noticed behind it.
func contacts(in *events.Instance) uint64 {
	n := uint64(0)
	for _, st := range in.Streams() {
		n += st.Counters.Connects
		for _, restarts := range st.Counters.Restarts {
			n += restarts
		}
	}
	return n
}
