package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/filestore"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
	"github.com/kvindex/kvindex/indexer/snapshot/redistest"
)

// writeSnapshots writes two snapshots of 2,000,000 bytes.
func writeSnapshots(t *testing.T, s snapshot.Sink) (ids []string) {
	t.Helper()
	for i := range 2 {
		m := snapshot.Meta{Cluster: "default", Kind: "index", Version: 1, Params: map[string]string{"seed": "1337"}}
		info, err := s.Write(t.Context(), m, func(w io.Writer) error {
			_, err := w.Write(bytes.Repeat([]byte{byte(i)}, 2_000_000))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID.String())
	}
	return ids
}

// wantRun runs the binary and checks its exit status and what it prints.
func wantRun(t *testing.T, code int, args []string, stdout []string, stderr string) string {
	t.Helper()
	o, e, c := output(t, nil, args...)
	if c != code || !strings.Contains(e, stderr) || stderr == "" && e != "" {
		t.Errorf("%q: exit status %d and not %d, %s", args, c, code, e)
	}
	for _, text := range stdout {
		if !strings.Contains(o, text) {
			t.Errorf("%q prints no %q:\n%s", args, text, o)
		}
	}
	return o
}

func TestE2ESnapshotFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := filestore.New(filestore.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, []string{"snapshot", "ls", dir}, []string{"ID  CREATED"}, "")
	wantRun(t, 1, []string{"snapshot", "verify", dir}, nil, "no snapshot in file "+dir)
	ids := writeSnapshots(t, s)
	rows := []string{ids[0], ids[1], "index/1", "2000000", "seed=1337"}
	wantRun(t, 0, []string{"snapshot", "ls", dir}, append(rows, "ok"), "")
	wantRun(t, 0, []string{"snapshot", "verify", dir}, append(rows, "whole"), "")

	// A flipped byte in the middle: ls does not see it, verify does.
	file := filepath.Join(dir, ids[1]+".snapshot")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, []string{"snapshot", "ls", dir}, append(rows, "ok"), "")
	wantRun(t, 1, []string{"snapshot", "verify", dir}, append(rows, "whole", "crc: of chunk 0"), "")
	out := wantRun(t, 1, []string{"snapshot", "verify", dir, "--format", "json"}, nil, "")
	var got []map[string]any
	for line := range strings.Lines(out) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, row)
	}
	if len(got) != 2 || got[0]["id"] != ids[1] || got[0]["ok"] != false || got[0]["reason"] != "crc" || got[1]["ok"] != true || got[1]["bytes"] != 2e6 {
		t.Errorf("%v", got)
	}
	if err := os.WriteFile(file, b[:len(b)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, []string{"snapshot", "ls", dir}, []string{"crc: in the manifest"}, "")

	wantRun(t, 1, []string{"snapshot", "ls", file}, nil, "no directory")
	wantRun(t, 1, []string{"snapshot", "ls", dir + "x"}, nil, "no such file")
	wantRun(t, 1, []string{"snapshot", "ls", dir, "--format", "xml"}, nil, "table or json")
	wantRun(t, 0, []string{"snapshot", "verify", "--help"}, []string{"Examples:", "redis+sentinel://"}, "")
}

func TestE2ESnapshotRedis(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "secret")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := redisstore.Connect(redisstore.Connection{Addrs: []string{srv.Addr}, PasswordFile: password})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := redisstore.New(redisstore.Options{Client: client, Cluster: "default"})
	if err != nil {
		t.Fatal(err)
	}
	ids := writeSnapshots(t, s)
	url := "redis://" + srv.Addr
	rows := []string{ids[0], ids[1], "index/1", "2000000", "seed=1337"}
	wantRun(t, 0, []string{"snapshot", "ls", url, "--password-file", password}, append(rows, "ok"), "")
	wantRun(t, 0, []string{"snapshot", "verify", "redis://:secret@" + srv.Addr}, append(rows, "whole"), "")
	if err := client.Del(t.Context(), "kvindex:{default}:snap:"+ids[1]+":1").Err(); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 1, []string{"snapshot", "verify", url, "--password-file", password}, append(rows, "whole", "missing: chunk 1 of 2"), "")
	wantRun(t, 1, []string{"snapshot", "verify", url, "--password-file", password, "--cluster", "other"}, nil, "no snapshot in redis "+srv.Addr)
	wantRun(t, 1, []string{"snapshot", "ls", url}, nil, "NOAUTH")
	wantRun(t, 1, []string{"snapshot", "ls", url + "/x"}, nil, "no database number")
	srv.Stop()
	wantRun(t, 1, []string{"snapshot", "ls", url, "--password-file", password}, nil, "connection refused")
}
