package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kvindex/kvindex/tokenizer/chat"
)

// engineArg makes this program the engine-like server.
const engineArg = "engine"

// tokenized is vLLM's answer to POST /tokenize
// (vllm/entrypoints/openai/protocol.py, TokenizeResponse).
type tokenized struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []uint32 `json:"tokens"`
}

// serveEngine answers POST /tokenize as vLLM does, with the chats of a model
// tokenized as a whole by the Hugging Face library, on a port of its own that
// it prints. It ends with its standard input, and so with its parent.
func serveEngine(dir string, in io.Reader, out io.Writer) error {
	f, err := readModel(dir, chatModel)
	if err != nil {
		return err
	}
	library, err := f.newLibrary()
	if err != nil {
		return err
	}
	defer library.Close()
	chats, err := f.newRenderer()
	if err != nil {
		return err
	}
	answer := func(body []byte) ([]byte, error) {
		text, _, err := chats.render(body, chat.Tokenize)
		if err != nil {
			return nil, err
		}
		ids, err := library.Append(nil, text)
		if err != nil {
			return nil, err
		}
		return json.Marshal(tokenized{Count: len(ids), MaxModelLen: 131072, Tokens: ids})
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = answer(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	fmt.Fprintln(out, listener.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, err = io.Copy(io.Discard, in) // until the parent closes it or is gone
	closing := server.Close()
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve: %w", serving)
	}
	return errors.Join(err, closing)
}

// engine is a client of an engine-like server in a process of its own.
type engine struct {
	url    string
	client *http.Client
	stdin  io.Closer
	cmd    *exec.Cmd
}

// startEngine starts this program again as the server.
func startEngine(ctx context.Context, dir string) (*engine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, engineArg, dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the engine-like server: %w", err)
	}
	e := &engine{client: &http.Client{Timeout: time.Minute}, stdin: stdin, cmd: cmd}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		e.stop()
		return nil, fmt.Errorf("cannot start the engine-like server: %w", err)
	}
	e.url = "http://" + strings.TrimSpace(line) + "/tokenize"
	return e, nil
}

func (e *engine) stop() {
	e.client.CloseIdleConnections()
	e.stdin.Close()
	_ = e.cmd.Wait() // it was told to end; how it does is of no interest
}

// post sends a chat request and returns the JSON of its tokens.
func (e *engine) post(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the engine-like server: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the engine-like server's answer: %w", err)
	}
	return answer, nil
}
