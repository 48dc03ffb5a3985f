package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// natsArg makes this program the NATS server: a process of its own, so that its
// processor time can be told from the engines'.
const natsArg = "serve-nats"

// serveNATS runs a server with JetStream in dir, prints its URL, and ends with
// its standard input.
func serveNATS(dir string, in io.Reader, out io.Writer) error {
	srv, err := natsd.NewServer(&natsd.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return fmt.Errorf("cannot make a NATS server: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not start")
	}
	if _, err := fmt.Fprintln(out, srv.ClientURL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in) // until the one who started us ends it, or ends
	srv.Shutdown()
	srv.WaitForShutdown()
	return err
}

// natsServer is that process.
type natsServer struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startNATS(dir string) (*natsServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start NATS: %w", err)
	}
	cmd := exec.Command(self, natsArg, dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start NATS: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start NATS: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start NATS: %w", err)
	}
	s := &natsServer{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("cannot start NATS: it does not say where it is: %w", err)
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

func (s *natsServer) stop() {
	_ = s.stdin.Close() // ends it
	_ = s.cmd.Wait()    // how it ends is of no interest
}
