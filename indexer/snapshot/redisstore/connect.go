package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mode is how the addresses of a Connection are to be understood.
type Mode string

// Modes.
const (
	Standalone Mode = ""         // one server
	Sentinel   Mode = "sentinel" // Sentinels, which know the master
	Cluster    Mode = "cluster"  // some nodes of a Redis Cluster
)

// Connection says how to reach Redis. Addrs is needed.
type Connection struct {
	Mode       Mode
	Addrs      []string // HOST:PORT
	MasterName string   // of Sentinel
	DB         int      // not of Cluster

	Username     string // an ACL user; "": the default one
	Password     string
	PasswordFile string // in place of Password; read anew for each connection, so that it can be changed

	SentinelUsername     string
	SentinelPasswordFile string // read once

	TLS      bool
	CAFile   string // PEM; "": what the system trusts
	CertFile string // of a client certificate
	KeyFile  string

	DialTimeout time.Duration // 0: 3 s
	Timeout     time.Duration // of each read and write; 0: 5 s
	PoolSize    int           // connections; 0: 4
}

// Validate reports the first setting that cannot be used.
func (c Connection) Validate() error {
	if len(c.Addrs) == 0 {
		return errors.New("cannot connect to Redis without an address")
	}
	for _, a := range c.Addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("cannot connect to Redis at %q: it must be HOST:PORT", a)
		}
	}
	switch c.Mode {
	case Standalone:
		if len(c.Addrs) > 1 {
			return fmt.Errorf("cannot connect to %d addresses of one Redis server: choose mode sentinel or cluster", len(c.Addrs))
		}
	case Sentinel:
		if c.MasterName == "" {
			return errors.New("cannot ask a Redis Sentinel without the name of a master")
		}
	case Cluster:
		if c.DB != 0 {
			return fmt.Errorf("cannot use database %d of a Redis Cluster: it has only 0", c.DB)
		}
	default:
		return fmt.Errorf("cannot connect to Redis in mode %q: it must be empty, sentinel or cluster", c.Mode)
	}
	if c.DB < 0 {
		return fmt.Errorf("cannot use Redis database %d", c.DB)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("cannot use a client certificate without both its file and its key's")
	}
	return nil
}

// String names the servers in logs. It contains no password.
func (c Connection) String() string {
	name := "redis"
	if c.Mode != Standalone {
		name += "+" + string(c.Mode)
	}
	return name + " " + strings.Join(c.Addrs, ",")
}

// ParseURL reads a URL: redis://USER:PASSWORD@HOST:PORT/DB,
// redis+sentinel://HOST:PORT,HOST:PORT/MASTER or redis+cluster://HOST:PORT,...
// With rediss in place of redis it is TLS. Without a port it is 6379, or 26379
// for Sentinels.
func ParseURL(text string) (Connection, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Connection{}, errors.New("cannot read the Redis URL: it must be redis://HOST:PORT") // the error might show a password
	}
	var c Connection
	scheme, mode, _ := strings.Cut(u.Scheme, "+")
	c.Mode, c.TLS = Mode(mode), scheme == "rediss"
	if scheme != "redis" && scheme != "rediss" {
		return c, fmt.Errorf("cannot use %s: it must begin with redis:// or rediss://, or with one of them and +sentinel or +cluster", u.Redacted())
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return c, fmt.Errorf("cannot use %s: it must have neither parameters nor a fragment", u.Redacted())
	}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	port := "6379"
	if c.Mode == Sentinel {
		port = "26379"
	}
	for a := range strings.SplitSeq(u.Host, ",") {
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(strings.Trim(a, "[]"), port)
		}
		c.Addrs = append(c.Addrs, a)
	}
	switch path := strings.Trim(u.Path, "/"); {
	case c.Mode == Sentinel:
		c.MasterName = path
	case path != "":
		if c.DB, err = strconv.Atoi(path); err != nil {
			return c, fmt.Errorf("cannot use %s: %q is no database number", u.Redacted(), path)
		}
	}
	return c, c.Validate()
}

// Connect returns a client. It connects when it is first used, and again when a
// connection breaks. The caller closes it.
func Connect(c Connection) (redis.UniversalClient, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		Addrs: c.Addrs, DB: c.DB, IsClusterMode: c.Mode == Cluster,
		Username: c.Username, Password: c.Password, SentinelUsername: c.SentinelUsername,
		DialTimeout: orDefault(c.DialTimeout, 3*time.Second),
		ReadTimeout: orDefault(c.Timeout, 5*time.Second), WriteTimeout: orDefault(c.Timeout, 5*time.Second),
		ContextTimeoutEnabled: true,
		// One more try covers a connection that broke; what takes longer is for the
		// next snapshot.
		MaxRetries: 1, DialerRetries: 1,
		PoolSize: orDefault(c.PoolSize, 4), PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.Mode == Sentinel {
		o.MasterName = c.MasterName
	}
	if c.PasswordFile != "" {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readSecret(c.PasswordFile)
			return c.Username, password, err
		}
	}
	var err error
	if c.SentinelPasswordFile != "" {
		if o.SentinelPassword, err = readSecret(c.SentinelPasswordFile); err != nil {
			return nil, err
		}
	}
	if c.TLS {
		if o.TLSConfig, err = c.tls(); err != nil {
			return nil, err
		}
	}
	return redis.NewUniversalClient(o), nil
}

func orDefault[T time.Duration | int](d, otherwise T) T {
	if d == 0 {
		return otherwise
	}
	return d
}

func readSecret(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the Redis password: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (c Connection) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the certificates that Redis is checked with: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cannot use %q: it holds no PEM certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot use the client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
