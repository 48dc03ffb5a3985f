package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSource(t *testing.T) {
	for in, want := range map[string]Source{
		"Qwen/Qwen3-0.6B": {"Qwen/Qwen3-0.6B", ""}, "gpt2": {"gpt2", ""}, "a/b_c.d@v1.0": {"a/b_c.d", "v1.0"},
		"Org/Name@refs/pr/3": {"Org/Name", "refs/pr/3"}, "Org/Name@" + commit1: {"Org/Name", commit1},
	} {
		got, err := ParseSource(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%q: %+v %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "/", "a/", "/a", "a/b/c", "../b", "a/..", "a/.", "..", ".", "a--b/c", "a..b", "-a/b", "a/b.git", "a/b\n", "a b", "a\\b", "a/b?x", "a/b#x", "a/%2e%2e",
		"a/b@", "a/b@../x", "a/b@x/../y", "a/b@/x", "a/b@x/", "a/b@x//y", "a/b@.x", "a/b@x..y", "a/b@x.lock", "a/b@x y", "a/b@x\x00", "a/b@-x", "a/b@x?y", strings.Repeat("a", 97),
	} {
		if got, err := ParseSource(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v %v", in, got, err)
		}
	}
}

func FuzzParseSource(f *testing.F) {
	f.Add("Org/Name@main")
	f.Fuzz(func(t *testing.T, s string) {
		src, err := ParseSource(s)
		if err != nil {
			return
		}
		if src.String() != s {
			t.Errorf("%q: %+v", s, src)
		}
		r := newRepo("/c", src.Repo)
		for _, path := range []string{r.ref(src.revision()), r.blob("x")} {
			if !strings.HasPrefix(filepath.Clean(path), "/c/models--") {
				t.Errorf("%q leads to %q", s, path)
			}
		}
	})
}

func TestIsDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("empty/dir", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "{}", "Org/Name/tokenizer.json")
	for in, want := range map[string]bool{
		"/models/x": true, "./x": true, "../x": true, ".": true, "Org/Name": true, "empty/dir": false, "Org/Other": false, "": false,
	} {
		if got := IsDirectory(in); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	write(t, " from_file\r\n", dir, "token")
	write(t, "from_path\n", dir, "elsewhere")
	home := t.TempDir()
	for name, c := range map[string]struct {
		in   Options
		env  map[string]string
		want Options
	}{
		"nothing":   {env: map[string]string{"HOME": home}, want: Options{Dir: home + "/.cache/huggingface/hub"}},
		"xdg":       {env: map[string]string{"XDG_CACHE_HOME": home}, want: Options{Dir: home + "/huggingface/hub"}},
		"hf_home":   {env: map[string]string{"HF_HOME": dir}, want: Options{Dir: dir + "/hub", Token: "from_file"}},
		"variables": {env: map[string]string{"HF_HOME": "$X/${Y}/$Z", "X": "/x", "Y": "y"}, want: Options{Dir: "/x/y/$Z/hub"}},
		"all": {
			env:  map[string]string{"HF_HOME": dir, "HF_HUB_CACHE": "/c", "HF_ENDPOINT": "https://hub.example", "HF_TOKEN": "t\n", "HF_HUB_OFFLINE": "true"},
			want: Options{Dir: "/c", Endpoint: "https://hub.example", Token: "t", LocalOnly: true},
		},
		"token path":   {env: map[string]string{"HF_HOME": dir, "HF_TOKEN_PATH": dir + "/elsewhere"}, want: Options{Dir: dir + "/hub", Token: "from_path"}},
		"not implicit": {env: map[string]string{"HF_HOME": dir, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "TRANSFORMERS_OFFLINE": "1"}, want: Options{Dir: dir + "/hub", LocalOnly: true}},
		"configured": {
			in:   Options{Dir: "/mine", Endpoint: "http://e", Token: "mine", LocalOnly: true},
			env:  map[string]string{"HF_HOME": dir, "HF_TOKEN": "t", "HF_ENDPOINT": "http://x", "HF_HUB_OFFLINE": "0"},
			want: Options{Dir: "/mine", Endpoint: "http://e", Token: "mine", LocalOnly: true},
		},
	} {
		if c.env["HF_HOME"] == "" && c.env["HOME"] == "" {
			c.env["HOME"] = home
		}
		got, err := c.in.FromEnv(func(k string) string { return c.env[k] })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got, cmp.Comparer(func(a, b Secret) bool { return string(a) == string(b) })); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if _, err := (Options{}).FromEnv(func(k string) string { return map[string]string{"HF_TOKEN_PATH": dir}[k] }); err == nil {
		t.Error("a directory was read as a token")
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{Endpoint: "hub.example"}, {Endpoint: "ftp://x"}, {Endpoint: "https://user:" + testToken + "@x"}, {Endpoint: "https://x?y=" + testToken}, {Endpoint: "https://" + testToken + "\x00"},
		{Token: testToken + "\r\nX: y"}, {MaxFile: -1}, {Silence: -1},
		{Files: []string{"../x"}}, {Files: []string{"/etc/passwd"}}, {Files: []string{"a/../../b"}}, {Files: []string{""}}, {Files: []string{"."}}, {Files: []string{"a\\..\\b"}}, {Files: []string{"c:x"}},
	} {
		_, err := New(o)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		noSecrets(t, err.Error())
	}
	if _, err := New(Options{Files: []string{"a/b.json"}}); err != nil {
		t.Error(err)
	}
	r := newRig(t)
	r.fetchErr(Source{Repo: "../x"}, ErrInvalid)
	r.fetchErr(Source{"Org/Name", "../../x"}, ErrInvalid)
}

// TestSecret: no way of printing options prints the token.
func TestSecret(t *testing.T) {
	o := Options{Token: testToken}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "o", o, "t", o.Token)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "t", o.Token)
	j, err := json.Marshal(o.Token)
	if err != nil {
		t.Fatal(err)
	}
	noSecrets(t, fmt.Sprintf("%v %+v %#v %s %q %s %s", o, o, o, o.Token, o.Token, b.String(), j))
	if Secret("").String() != "" || !strings.Contains(b.String(), "(set)") {
		t.Error(b.String())
	}
}
