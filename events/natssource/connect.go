package natssource

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// ConnectOptions say where the NATS servers are and who asks.
type ConnectOptions struct {
	URL             string // one or several, with commas; user:password@ is allowed
	Name            string // shown by the server
	CredentialsFile string // of a user (JWT and key); "": none
	TokenFile       string // holds a token; "": none
	CAFile          string // roots that the server's certificate is checked with; "": the system's
	CertFile        string // certificate of ours; "": none
	KeyFile         string // its key
}

// Validate reports everything that is wrong with the options.
func (o ConnectOptions) Validate() error {
	var errs []error
	if o.URL == "" {
		errs = append(errs, errors.New("the URL of NATS is missing"))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("a certificate needs its key, and a key its certificate"))
	}
	return errors.Join(errs...)
}

// Connect connects now or, if no server can be reached, as soon as one can,
// and again whenever the connection breaks, for ever. What is published while
// there is no connection fails at once: nothing waits unseen. changed is
// called, from a goroutine of the connection, when it breaks and when it is
// there.
func Connect(o ConnectOptions, changed func(up bool)) (*nats.Conn, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 250*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { changed(true) }),
		nats.ReconnectHandler(func(*nats.Conn) { changed(true) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { changed(false) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // what was missed shows in the seqs
	}
	if o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredentialsFile))
	}
	if o.TokenFile != "" {
		opts = append(opts, nats.TokenHandler(tokenFrom(o.TokenFile)))
	}
	if o.CAFile != "" {
		opts = append(opts, nats.RootCAs(o.CAFile))
	}
	if o.CertFile != "" {
		opts = append(opts, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	nc, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot use NATS at %q: %w", redact(o.URL), err)
	}
	return nc, nil
}
