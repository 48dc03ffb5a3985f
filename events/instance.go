package events

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// InstanceSpec describes a model server to follow.
type InstanceSpec struct {
	ID        string
	Model     string
	Tenant    string // "" is the default tenant
	LoRA      string // scope of all its blocks that name no adapter; "" is the base model
	Salt      string // scope of its blocks that carry no cache_salt
	BlockSize int    // 0: learnt from its events
	Source    string // how it came to be followed ("static", "register" ...): for people
	Engine    string // "vllm", "sglang" ...: for people; "" if unknown
	URL       string // of its HTTP server; "" if unknown
	Aliases   []string
	Streams   []StreamSpec // one a data-parallel rank
}

// Validate reports everything that is wrong with the spec, in one error.
func (s InstanceSpec) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.ID == "" {
		bad("instance_id is empty")
	}
	if s.Model == "" {
		bad("instance %q: model is empty", s.ID)
	}
	if s.BlockSize < 0 || s.BlockSize > maxBlockSize {
		bad("instance %q: block_size %d is not in 1..%d (or 0 to learn it)", s.ID, s.BlockSize, maxBlockSize)
	}
	if len(s.Streams) == 0 {
		bad("instance %q: no endpoint", s.ID)
	}
	for i, st := range s.Streams {
		if st.Rank < 0 {
			bad("instance %q: dp_rank %d is negative", s.ID, st.Rank)
		}
		if err := checkEndpoint(st.Endpoint); err != nil {
			bad("instance %q, dp_rank %d: endpoint: %w", s.ID, st.Rank, err)
		}
		if st.ReplayEndpoint != "" {
			if err := checkEndpoint(st.ReplayEndpoint); err != nil {
				bad("instance %q, dp_rank %d: replay_endpoint: %w", s.ID, st.Rank, err)
			}
		}
		for _, other := range s.Streams[:i] {
			if other.Rank == st.Rank {
				bad("instance %q: dp_rank %d is given twice", s.ID, st.Rank)
			}
		}
	}
	return errors.Join(errs...)
}

// checkEndpoint accepts what a ZMQ socket can connect to, and subjects of NATS.
func checkEndpoint(e string) error {
	transport, rest, ok := strings.Cut(e, "://")
	switch {
	case e == "":
		return errors.New("is empty")
	case !ok:
		return fmt.Errorf("%q has no transport: write tcp://HOST:PORT", e)
	case (transport == "ipc" || transport == TransportNATS) && rest != "":
		return nil
	case transport != "tcp":
		return fmt.Errorf("%q: transport %q is not supported: use tcp or ipc", e, transport)
	case strings.Contains(rest, "*"):
		return fmt.Errorf("%q is the engine's bind address: replace * by the host that kvindex can dial", e)
	}
	i := strings.LastIndexByte(rest, ':')
	if i <= 0 || i == len(rest)-1 || strings.Trim(rest[i+1:], "0123456789") != "" {
		return fmt.Errorf("%q has no port: write tcp://HOST:PORT", e)
	}
	return nil
}

// Instance is a followed model server. What it returns may be used
// concurrently; its identity does not change.
type Instance struct {
	spec     InstanceSpec
	sessions []*Session
}

// Spec returns what is followed. The slices in it are shared: read only.
func (i *Instance) Spec() InstanceSpec { return i.spec }

// Health is the worst of the instance's streams. It takes no lock.
func (i *Instance) Health() Health {
	var worst Health
	for n, s := range i.sessions {
		if h := s.Health(); n == 0 || h.State.severity() > worst.State.severity() {
			worst = h
			if len(i.sessions) > 1 && h.Reason != "" {
				worst.Reason = fmt.Sprintf("dp_rank %d: %s", s.opts.Stream.Rank, h.Reason)
			}
		}
	}
	return worst
}

// LastSeen returns when the last message of any stream came; the zero time if
// none did.
func (i *Instance) LastSeen() time.Time {
	var last time.Time
	for _, s := range i.sessions {
		if t := s.LastSeen(); t.After(last) {
			last = t
		}
	}
	return last
}

// BlockSize returns the tokens a block, 0 while unknown. It takes no lock.
func (i *Instance) BlockSize() int {
	for _, s := range i.sessions {
		if n := s.BlockSize(); n != 0 {
			return n
		}
	}
	return 0
}

// Streams returns snapshots of the instance's streams, by rank.
func (i *Instance) Streams() []StreamStatus {
	out := make([]StreamStatus, len(i.sessions))
	for n, s := range i.sessions {
		out[n] = s.Status()
	}
	return out
}

// Resync starts every stream of the instance over.
func (i *Instance) Resync() {
	for _, s := range i.sessions {
		s.Resync()
	}
}

// Clear forgets every block of the instance.
func (i *Instance) Clear() {
	for _, s := range i.sessions {
		s.Clear()
	}
}

// Names returns every spelling by which routers may know the instance:
// its id, pod.namespace and namespace/pod, the configured aliases, its URL,
// host:port and host. Names that several instances share mean none of them;
// the Fleet leaves those out.
func (s InstanceSpec) Names() []string {
	names := append([]string{s.ID}, s.Aliases...)
	for _, n := range slices.Clone(names) {
		if ns, pod, ok := strings.Cut(n, "/"); ok && ns != "" && pod != "" && !strings.Contains(pod, "/") {
			names = append(names, pod+"."+ns)
		} else if pod, ns, ok := strings.Cut(n, "."); ok && pod != "" && ns != "" && !strings.ContainsAny(ns, "./:") {
			names = append(names, ns+"/"+pod)
		}
	}
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		names = append(names, strings.TrimRight(s.URL, "/"), u.Host, u.Hostname())
	}
	for _, st := range s.Streams {
		if host, ok := strings.CutPrefix(st.Endpoint, "tcp://"); ok {
			names = append(names, strings.Trim(host[:strings.LastIndexByte(host, ':')], "[]"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
