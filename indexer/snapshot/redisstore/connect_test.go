package redisstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

func TestParseURL(t *testing.T) {
	f := func(text string, c Connection) {
		t.Helper()
		got, err := ParseURL(text)
		ok(t, err)
		want(t, text, got, c)
		if strings.Contains(got.String(), "secret") {
			t.Errorf("%s shows the password: %s", text, got)
		}
	}
	f("redis://10.0.0.1", Connection{Addrs: []string{"10.0.0.1:6379"}})
	f("redis://10.0.0.1:7000/3", Connection{Addrs: []string{"10.0.0.1:7000"}, DB: 3})
	f("rediss://kv:secret@redis.example:7000/", Connection{Addrs: []string{"redis.example:7000"}, TLS: true, Username: "kv", Password: "secret"})
	f("redis://[::1]", Connection{Addrs: []string{"[::1]:6379"}})
	f("redis+sentinel://a,b:27000/kv", Connection{Mode: Sentinel, Addrs: []string{"a:26379", "b:27000"}, MasterName: "kv"})
	f("rediss+cluster://a,b", Connection{Mode: Cluster, TLS: true, Addrs: []string{"a:6379", "b:6379"}})
	for _, text := range []string{
		"", "10.0.0.1:6379", "http://a", "redis+x://a", "redis://a,b", "redis://a/b", "redis://a/-1", "redis://a?db=1",
		"redis+sentinel://a", "redis+cluster://a/1", "redis://kv:secret@a:b:c", "redis://kv:secret@a/x", "redis://:secret@a?x", "redis://\x7fsecret",
	} {
		if c, err := ParseURL(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, c)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows the password: %v", text, err)
		}
	}
}

func TestConnectionValidate(t *testing.T) {
	for _, c := range []Connection{
		{}, {Addrs: []string{"a"}}, {Addrs: []string{"a:1"}, CertFile: "x"}, {Addrs: []string{"a:1"}, DB: -1},
		{Addrs: []string{"a:1"}, SentinelPasswordFile: "/none"}, {Addrs: []string{"a:1"}, TLS: true, CAFile: "/none"},
		{Addrs: []string{"a:1"}, TLS: true, CAFile: "connect.go"}, {Addrs: []string{"a:1"}, TLS: true, CertFile: "/none", KeyFile: "/none"},
	} {
		if client, err := Connect(c); err == nil {
			t.Errorf("%+v is accepted", c)
			client.Close()
		}
	}
}

// TestUserAndPasswordFile: the user that the documentation describes is enough,
// and its password may change while connections come and go.
func TestUserAndPasswordFile(t *testing.T) {
	srv, admin := started(t)
	ctx := t.Context()
	ok(t, admin.o.Client.Do(ctx, "ACL", "SETUSER", "kv", "on", ">first", "~kvindex:*",
		"+get", "+mget", "+getrange", "+set", "+pexpire", "+unlink", "+eval", "+evalsha", "+exists").Err())
	file := filepath.Join(t.TempDir(), "password")
	ok(t, os.WriteFile(file, []byte("first\n"), 0o600))
	s := newStore(t, connect(t, Connection{Addrs: []string{srv.Addr}, Username: "kv", PasswordFile: file}), Options{})
	write(t, s, []byte("one"))
	write(t, s, []byte("two"))
	write(t, s, []byte("three"))
	_, err := s.Write(ctx, testMeta, func(io.Writer) error { return errors.New("broken") })
	wantReason(t, "broken", err, snapshot.ReasonStore)
	want(t, "keys", len(keys(t, admin)), 9) // three snapshots, two pointers and the writer

	ok(t, admin.o.Client.Do(ctx, "ACL", "SETUSER", "kv", "resetpass", ">second").Err())
	ok(t, admin.o.Client.Do(ctx, "CLIENT", "KILL", "USER", "kv").Err())
	_, err = s.Open(ctx, snapshot.ID{})
	wantReason(t, "old password", err, snapshot.ReasonStore, "WRONGPASS")
	ok(t, os.WriteFile(file, []byte("second\n"), 0o600))
	wantBody(t, s, snapshot.ID{}, []byte("three"))
	ok(t, os.Remove(file), admin.o.Client.Do(ctx, "CLIENT", "KILL", "USER", "kv").Err())
	_, err = s.Open(ctx, snapshot.ID{})
	wantReason(t, "no password", err, snapshot.ReasonStore, "cannot read the Redis password")
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	s := newStore(t, connect(t, Connection{Addrs: []string{addr}, TLS: true, CAFile: cert, CertFile: cert, KeyFile: key}), Options{})
	body := repeated(1, 600_000)
	write(t, s, body)
	wantBody(t, s, snapshot.ID{}, body)

	f := func(what string, c Connection, text string) {
		t.Helper()
		c.DialTimeout, c.Timeout = time.Second, time.Second
		_, err := newStore(t, connect(t, c), Options{}).Open(t.Context(), snapshot.ID{})
		wantReason(t, what, err, snapshot.ReasonStore, text)
	}
	f("unknown authority", Connection{Addrs: []string{addr}, TLS: true}, "certificate")
	f("no client certificate", Connection{Addrs: []string{addr}, TLS: true, CAFile: cert}, "")
}

// writeCertificate makes a certificate for 127.0.0.1 that is its own authority.
func writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kvindex test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ok(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	ok(t, err,
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

func TestRedisCluster(t *testing.T) {
	addrs := redistest.StartCluster(t, 3)
	for _, cluster := range []string{"blue", "red", "green", "a", "b", "c"} { // on different nodes
		s, err := New(Options{Client: connect(t, Connection{Mode: Cluster, Addrs: addrs[:1]}), Cluster: cluster})
		ok(t, err)
		bodies := [][]byte{repeated(1, 600_000), repeated(2, 10), repeated(3, 600_000)}
		for _, body := range bodies {
			write(t, s, body)
		}
		wantBody(t, s, snapshot.ID{}, bodies[2])
		ids, err := s.pointers(t.Context())
		ok(t, err)
		wantBody(t, s, ids[0], bodies[1])
	}
}

// TestSentinel: the master is found through a Sentinel, and found again when
// another has taken its place.
func TestSentinel(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	s := newStore(t, connect(t, Connection{
		Mode: Sentinel, Addrs: []string{sentinel.Addr}, MasterName: sentinel.MasterName, Timeout: 4 * time.Second,
	}), Options{})
	body := repeated(1, 600_000)
	write(t, s, body)
	wantBody(t, s, snapshot.ID{}, body)
	ok(t, s.o.Client.Do(t.Context(), "WAIT", 1, 3000).Err()) // the replica has it
	sentinel.Master.Stop()
	begin := time.Now()
	for {
		_, err := s.Write(t.Context(), testMeta, bytesOf([]byte("after the failover")))
		if err == nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("no failover: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("written again after %v", time.Since(begin))
	wantBody(t, s, snapshot.ID{}, []byte("after the failover"))
	ids, err := s.pointers(t.Context())
	ok(t, err)
	wantBody(t, s, ids[0], body)
}
