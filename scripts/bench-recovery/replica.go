package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
)

// replicaArg makes this program the other replica: it reads a snapshot of the URL
// that follows for each line that it gets, and says how many bytes it had. In a
// process of its own it takes no time from those who ask.
const replicaArg = "replica"

func serveReplica(url string, in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n, err := readSnapshot(url)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, n); err != nil {
			return err
		}
	}
	return nil
}

func readSnapshot(url string) (n int64, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.Copy(io.Discard, resp.Body)
}

// replica is that process.
type replica struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startReplica(url string) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &replica{cmd: lowly(self, replicaArg, url)}
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	return r, r.cmd.Start()
}

// read has it read a snapshot of at least so many bytes.
func (r *replica) read(least int) error {
	if _, err := fmt.Fprintln(r.in); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Fscanln(r.out, &n); err != nil || n < least {
		return fmt.Errorf("cannot read a snapshot: %d bytes: %w", n, err)
	}
	return nil
}

func (r *replica) stop() {
	_ = r.in.Close() // which ends it
	_ = r.cmd.Wait() // how is of no interest
}
