package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// lookupTimeout bounds all questions of one round.
const lookupTimeout = 10 * time.Second

// addrLookup and srvLookup are the parts of Lookup. That a name does not exist
// or has no such records is a *net.DNSError with IsNotFound; any other error
// means that nothing is known.
type addrLookup interface {
	// LookupNetIP returns the addresses of a host, of network ip4 or ip6.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

type srvLookup interface {
	// LookupSRV with an empty service and proto returns the SRV records of name.
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)
}

// resolver is Go's own, which tells "there is no such name" from "the server
// did not answer": part of an answer is no answer. server is asked, or without
// one the system's.
func resolver(server string) Lookup {
	return &net.Resolver{
		PreferGo: true, StrictErrors: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if server != "" {
				address = server
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			// The resolver reads until its own timeout, 5 s an attempt, though
			// nobody waits any more: a read ends with the question that it is of.
			// A timeout is left to the connection's deadline, which says so.
			context.AfterFunc(ctx, func() {
				if errors.Is(ctx.Err(), context.Canceled) {
					_ = conn.Close() // the resolver closes it too: no harm
				}
			})
			return conn, nil
		},
	}
}

// place is where a host is reached.
type place struct {
	addrs []netip.Addr // ascending, IPv4 first
	name  string       // of an SRV record; "": there is none
	port  int          // likewise; 0: it does not say
}

// found is what one round of questions came to.
type found struct {
	hosts  map[string]place    // by instance id
	silent [2]bool             // no answer about IPv4, IPv6 addresses of the name, or about its SRV records
	about  map[string]struct{} // ids of which no address was told
	err    error               // the first failure, if nothing at all is known
}

// silentAbout reports whether the answer says nothing about h, so that h not
// being in it means nothing.
func (f *found) silentAbout(h *host) bool {
	if _, ok := f.about[h.id]; ok {
		return true
	}
	family := 0
	if h.addr.Is6() {
		family = 1
	}
	return f.silent[family]
}

// ask looks the name up.
func (w *watched) ask(ctx context.Context) found {
	if w.srv() {
		return w.askSRV(ctx)
	}
	f := found{hosts: map[string]place{}}
	addrs, errs := addresses(ctx, w.lookup, w.Name.Name)
	for i, err := range errs {
		f.silent[i] = err != nil
	}
	if len(addrs) == 0 {
		f.err = errors.Join(errs[:]...) // of one family only: there may be no host of the other
	}
	base := strings.TrimSuffix(w.Name.Name, ".")
	for _, a := range addrs {
		f.hosts[base+"/"+a.String()] = place{addrs: []netip.Addr{a}}
	}
	return f
}

// askSRV looks up the name's SRV records and the addresses of their targets.
func (w *watched) askSRV(ctx context.Context) found {
	f := found{hosts: map[string]place{}, about: map[string]struct{}{}}
	_, records, err := w.lookup.LookupSRV(ctx, "", "", w.Name.Name)
	if err != nil && !notFound(err) {
		return found{silent: [2]bool{true, true}, err: fmt.Errorf("cannot look up %q: %w", w.Name.Name, err)}
	}
	for _, r := range records {
		id := strings.TrimSuffix(r.Target, ".")
		if _, twice := f.hosts[id]; twice || id == "" {
			continue // another port of the same host
		}
		addrs, errs := addresses(ctx, w.lookup, r.Target)
		switch {
		case len(addrs) > 0:
			f.hosts[id] = place{addrs: addrs, name: id, port: int(r.Port)}
		case errors.Join(errs[:]...) != nil:
			f.about[id] = struct{}{}
		}
	}
	return f
}

// addresses asks for both families; that there are none is no error.
func addresses(ctx context.Context, l addrLookup, name string) (addrs []netip.Addr, errs [2]error) {
	for i, network := range [2]string{"ip4", "ip6"} {
		list, err := l.LookupNetIP(ctx, network, name)
		if err != nil && !notFound(err) {
			errs[i] = fmt.Errorf("cannot look up %q: %w", name, err)
			continue
		}
		for _, a := range list {
			addrs = append(addrs, a.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), errs
}

func notFound(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound && !dns.IsTimeout && !dns.IsTemporary
}
