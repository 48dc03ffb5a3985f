package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn is a connection that is kept alive and carries one request at a time.
// It dials when there is something to send.
type conn struct {
	addr    string
	timeout time.Duration
	head    []byte // up to the value of Content-Length
	nc      *closer
	r       *bufio.Reader
	out     []byte // head of one request
	in      []byte // body of one answer
}

// answer is what is looked at of an answer.
type answer struct {
	server time.Duration // what the server says that it took
	timed  bool          // it did say so
	exact  bool          // its state is "exact"
}

func newConn(o Options) *conn {
	host := o.URL.Host
	c := &conn{addr: host, timeout: o.Timeout, nc: &closer{}, r: bufio.NewReaderSize(nil, 32<<10)}
	if o.URL.Port() == "" {
		c.addr = net.JoinHostPort(o.URL.Hostname(), "80")
	}
	c.head = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", o.URL.RequestURI(), host)
	if o.Token != "" {
		c.head = fmt.Appendf(c.head, "Authorization: Bearer %s\r\n", o.Token)
	}
	c.head = append(c.head, "Content-Length: "...)
	return c
}

func (c *conn) close() { c.nc.close(true) }

// ask sends a request and reads its answer. After an error the next request
// has a new connection.
func (c *conn) ask(body []byte) (a answer, err error) {
	nc, err := c.nc.get(c.addr, c.timeout)
	if err != nil {
		return a, err
	}
	if c.nc.fresh {
		c.r.Reset(nc)
		c.nc.fresh = false
	}
	defer func() {
		var status *StatusError
		if err != nil && !errors.As(err, &status) {
			c.nc.close(false)
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return a, err
	}
	c.out = append(c.out[:0], c.head...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	bufs := net.Buffers{c.out, body}
	if _, err := bufs.WriteTo(nc); err != nil {
		return a, err
	}
	status, err := c.read()
	if err != nil {
		return a, err
	}
	if status != 200 {
		return a, &StatusError{status, string(c.in[:min(len(c.in), 300)])}
	}
	return parseAnswer(c.in), nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d: %s", e.Status, strings.TrimSpace(e.Body))
}

// read reads a response into c.in.
func (c *conn) read() (status int, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 13 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, errors.New("the answer is not HTTP/1.1")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, errors.New("the answer has no status")
	}
	length, closing := -1, false
	for {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return 0, err
		}
		name, value, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if !ok {
			break // the empty line
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, errors.New("the answer's Content-Length is no number")
			}
		case bytes.EqualFold(name, []byte("Connection")):
			closing = bytes.EqualFold(value, []byte("close"))
		}
	}
	switch {
	case length >= 0:
	case closing: // the server's own refusals
		rest, _ := io.ReadAll(io.LimitReader(c.r, 300))
		c.nc.close(false)
		return status, fmt.Errorf("status %d: %s", status, rest)
	default:
		return 0, errors.New("the answer has no Content-Length")
	}
	if cap(c.in) < length {
		c.in = make([]byte, length)
	}
	c.in = c.in[:length]
	if _, err := io.ReadFull(c.r, c.in); err != nil {
		return 0, err
	}
	if closing {
		c.nc.close(false)
	}
	return status, nil
}

// parseAnswer finds what is looked at of an answer of /v1/query, without
// parsing all of it: the state stands in front of the instances, the timings
// behind them.
func parseAnswer(b []byte) (a answer) {
	if i := bytes.Index(b, []byte(`"state":"`)); i >= 0 {
		a.exact = bytes.HasPrefix(b[i+len(`"state":"`):], []byte(`exact"`))
	}
	const total = `"total":`
	if i := bytes.LastIndex(b, []byte(total)); i >= 0 && i > len(b)-64 {
		digits := b[i+len(total):]
		n := 0
		for n < len(digits) && '0' <= digits[n] && digits[n] <= '9' {
			n++
		}
		if us, err := strconv.Atoi(string(digits[:n])); err == nil {
			a.server, a.timed = time.Duration(us)*time.Microsecond, true
		}
	}
	return a
}
