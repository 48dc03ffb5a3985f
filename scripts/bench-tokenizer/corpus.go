package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// speedBytes is how long the texts are on which the encoders' speed is
// measured.
const speedBytes = 384 << 10

// corpus is text that is on every machine with Go: its source tree holds prose
// (Newton's Opticks, in the public domain, and the comments) and code. Nothing
// of it is repeated.
type corpus struct {
	opticks string
	files   []string // Go source, in an order of its own
	next    int      // in files
	prose   string   // comments of the files before next that nobody has taken
	code    string
	chinese func(n int) string
}

// newCorpus finds Go's source tree and makes a Chinese language from the
// vocabulary of a tokenizer that knows Chinese.
func newCorpus(tokenizerJSON []byte) (*corpus, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find Go's source tree: go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	opticks, err := os.ReadFile(filepath.Join(src, "testdata", "Isaac.Newton-Opticks.txt"))
	if err != nil {
		return nil, fmt.Errorf("cannot read English text of Go's source tree: %w", err)
	}
	c := &corpus{opticks: string(opticks)}
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".go") && !strings.Contains(path, "testdata") {
			c.files = append(c.files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list Go's source tree: %w", err)
	}
	slices.Sort(c.files)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(c.files), func(i, j int) { c.files[i], c.files[j] = c.files[j], c.files[i] })
	c.chinese, err = chineseOf(tokenizerJSON)
	return c, err
}

// maxGenerated leaves out files of tables, which are like no code that people
// talk about.
const maxGenerated = 150_000

// fill reads files until there are n bytes each of prose and of code.
func (c *corpus) fill(n int) error {
	var prose, code strings.Builder
	for len(c.prose)+prose.Len() < n || len(c.code)+code.Len() < n {
		if c.next == len(c.files) {
			return errors.New("cannot make text: Go's source tree is too small")
		}
		raw, err := os.ReadFile(c.files[c.next])
		if err != nil {
			return fmt.Errorf("cannot read Go's source tree: %w", err)
		}
		c.next++
		if len(raw) > maxGenerated || !utf8.Valid(raw) {
			continue
		}
		code.Write(raw)
		for s := bufio.NewScanner(strings.NewReader(string(raw))); s.Scan(); {
			text, ok := strings.CutPrefix(strings.TrimSpace(s.Text()), "// ")
			if ok && !strings.HasPrefix(text, "Copyright ") && !strings.Contains(text, "BSD-style") && !strings.Contains(text, "LICENSE file") {
				prose.WriteString(text)
				prose.WriteByte(" \n"[len(text)&7/7])
			}
		}
	}
	c.prose += prose.String()
	c.code += code.String()
	return nil
}

// takeProse returns n bytes of comments that were not taken before.
func (c *corpus) takeProse(n int) (string, error) {
	err := c.fill(n)
	if err != nil {
		return "", err
	}
	var text string
	text, c.prose = cutAt(c.prose, n)
	return text, nil
}

// takeCode returns n bytes of code that were not taken before.
func (c *corpus) takeCode(n int) (string, error) {
	err := c.fill(n)
	if err != nil {
		return "", err
	}
	var text string
	text, c.code = cutAt(c.code, n)
	return text, nil
}

// cutAt cuts text after n bytes, or before the character there.
func cutAt(text string, n int) (before, after string) {
	n = min(n, len(text))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n], text[n:]
}

// sample is a text of one kind.
type sample struct{ kind, text string }

// samples are the texts on which the encoders' speed is measured: English is
// Newton's Opticks, code is Go's, Chinese is made, mixed are others of the
// three in turns of 3,000 bytes.
func (c *corpus) samples() ([]sample, error) {
	english, rest := cutAt(c.opticks, speedBytes)
	code, err := c.takeCode(speedBytes)
	if err != nil {
		return nil, err
	}
	var mixed strings.Builder
	for mixed.Len() < speedBytes {
		const turn = 3000
		var e string
		e, rest = cutAt(rest, turn)
		mixed.WriteString(e)
		g, err := c.takeCode(turn)
		if err != nil {
			return nil, err
		}
		mixed.WriteString(g)
		mixed.WriteString(c.chinese(turn))
	}
	m, _ := cutAt(mixed.String(), speedBytes)
	return []sample{{"english", english}, {"code", code}, {"chinese", c.chinese(speedBytes)}, {"mixed", m}}, nil
}

// chineseOf returns a source of text that is made of the Chinese tokens of a
// vocabulary, which stand in it by frequency, in clauses of 3 to 12. A clause
// is one word to the tokenizers and hardly comes twice, as in real Chinese.
func chineseOf(tokenizerJSON []byte) (func(n int) string, error) {
	var file struct {
		Model struct {
			Vocab map[string]uint32 `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &file); err != nil {
		return nil, fmt.Errorf("cannot read a vocabulary: %w", err)
	}
	alphabet := byteAlphabet()
	words := map[uint32]string{}
	var ids []uint32
	for token, id := range file.Model.Vocab {
		b := make([]byte, 0, len(token))
		for _, r := range token {
			b = append(b, alphabet[r])
		}
		if w := string(b); w != "" && utf8.ValidString(w) && strings.IndexFunc(w, notHan) < 0 {
			words[id] = w
			ids = append(ids, id)
		}
	}
	if len(ids) < 1000 {
		return nil, fmt.Errorf("cannot make Chinese text: the vocabulary has %d Chinese words", len(ids))
	}
	slices.Sort(ids)
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 20, uint64(len(ids)-1))
	marks := []string{"，", "，", "，", "。", "。", "、", "：", "？", "。\n", "2024"}
	return func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			for range 3 + r.IntN(10) {
				b.WriteString(words[ids[zipf.Uint64()]])
			}
			b.WriteString(marks[r.IntN(len(marks))])
		}
		text, _ := cutAt(b.String(), n)
		return text
	}, nil
}

func notHan(r rune) bool { return !unicode.Is(unicode.Han, r) }

// byteAlphabet says which byte a character of a byte-level vocabulary stands
// for: printable ones for themselves, the others for what is not.
func byteAlphabet() map[rune]byte {
	m := map[rune]byte{}
	other := rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[rune(b)] = byte(b)
		} else {
			m[other] = byte(b)
			other++
		}
	}
	return m
}
