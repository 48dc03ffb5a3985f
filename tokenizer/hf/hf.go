//go:build cgo && !nohf && (amd64 || arm64)

package hf

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	procs := runtime.GOMAXPROCS(0)
	if o.MaxInstances == 0 {
		o.MaxInstances = min((procs+3)/4, 4)
	}
	o.MaxInstances = min(o.MaxInstances, procs)
	if o.MaxInput == 0 {
		o.MaxInput = MaxInputLimit
	}
	return o
}

// Encoder is a loaded tokenizer. Its methods may be called concurrently. Its memory is the library's, which the garbage
// collector does not see: it must be closed.
type Encoder struct {
	maxInput int
	spec     *spec
	gate     *gate
	pool     *pool
	trimmer  trimmer
	freed    sync.Once

	escaping struct { // the instance for escaped text, see escape.go
		sync.Mutex
		instance   *instance
		sentinelID uint32
		err        error // why there is none
	}
}

// Available reports whether this build has the library.
func Available() bool { return true }

// New loads a tokenizer from the content of its tokenizer.json, which takes up to seconds and some three times the
// file's size while it does. The encoder keeps a copy of the JSON, from which further instances are loaded.
func New(tokenizerJSON []byte, o Options) (*Encoder, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	sp, err := parseSpec(tokenizerJSON, o.TokenizerConfig)
	if err != nil {
		return nil, err
	}
	build := func() (*instance, error) { return load(sp.plain()) }
	first, err := build()
	if err != nil {
		return nil, err
	}
	for _, t := range sp.merged {
		// The library gives new tokens the next free ids, whatever the file says. Where that is not the id that the
		// file says, the model was not trained with what the library makes of it.
		if ids := first.encode(t.Content, false); len(ids) != 1 || ids[0] != t.ID {
			first.free()
			return nil, fmt.Errorf("cannot add token of tokenizer_config.json with id %d: the library gives it %d", t.ID, ids)
		}
	}
	procs := runtime.GOMAXPROCS(0)
	return &Encoder{
		maxInput: o.MaxInput,
		spec:     sp,
		gate:     newGate(procs, o.MaxInput),
		pool:     newPool(first, o.MaxInstances, procs/o.MaxInstances, build),
	}, nil
}

// Append appends the ids of text to dst. Special tokens in the text are recognised, and none are added. On error dst is
// returned unchanged; the errors are ErrClosed, ErrTooLong, ErrNUL and ErrEncode, wrapped or not.
func (e *Encoder) Append(dst []uint32, text string) ([]uint32, error) {
	return e.append(dst, text, false)
}

// AppendSpecial is Append with the special tokens that the tokenizer's post-processor adds, such as one at the
// beginning of the text (add_special_tokens=true).
func (e *Encoder) AppendSpecial(dst []uint32, text string) ([]uint32, error) {
	return e.append(dst, text, true)
}

func (e *Encoder) append(dst []uint32, text string, special bool) ([]uint32, error) {
	if len(text) > e.maxInput {
		return dst, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(text), e.maxInput)
	}
	text = repairUTF8(text)
	escaped := text
	if strings.IndexByte(text, 0) >= 0 {
		if !e.spec.escapable {
			return dst, ErrNUL
		}
		escaped = escape(text)
	}
	// Both may have made it longer.
	if len(escaped) > e.maxInput {
		return dst, fmt.Errorf("%w: %d bytes with replacements, the limit is %d", ErrTooLong, len(escaped), e.maxInput)
	}
	if err := e.gate.enter(len(escaped)); err != nil {
		return dst, err
	}
	defer e.gate.leave(len(escaped))
	defer e.trimmer.encoded(len(escaped))

	var ids []uint32
	if escaped != text {
		i, _, err := e.escapingInstance()
		if err != nil {
			return dst, err
		}
		ids = i.encode(escaped, special)
	} else {
		i := e.pool.acquire()
		ids = i.encode(text, special)
		e.pool.put(i)
	}
	if len(ids) == 0 && text != "" {
		if err := e.confirmEmpty(text); err != nil {
			return dst, err
		}
	}
	return append(dst, ids...), nil
}

// confirmEmpty returns nil if text has no tokens, and an error if the library failed to encode it, or if that cannot
// be told. It is called inside the gate.
func (e *Encoder) confirmEmpty(text string) error {
	if !e.spec.escapable && strings.Contains(text, escapeMark) {
		return ErrEncode
	}
	i, id, err := e.escapingInstance()
	if err != nil {
		return err
	}
	if ids := i.encode(escape(text)+sentinel, false); len(ids) != 1 || ids[0] != id {
		return ErrEncode
	}
	return nil
}

// escapingInstance returns the instance for escaped text and the id of sentinel in it, and loads it the first time.
// It is called inside the gate.
func (e *Encoder) escapingInstance() (*instance, uint32, error) {
	s := &e.escaping
	s.Lock()
	defer s.Unlock()
	if s.instance != nil || s.err != nil {
		return s.instance, s.sentinelID, s.err
	}
	i, err := load(e.spec.escaping())
	if err != nil {
		s.err = fmt.Errorf("cannot prepare for text with NUL bytes: %w", err)
		return nil, 0, s.err
	}
	ids := i.encode(sentinel, false)
	if len(ids) != 1 {
		i.free()
		s.err = fmt.Errorf("%w: the sentinel has %d ids", ErrNUL, len(ids))
		return nil, 0, s.err
	}
	s.instance, s.sentinelID = i, ids[0]
	return s.instance, s.sentinelID, nil
}

// Close waits for the calls under way and frees the memory; calls that still wait for their turn and later ones return
// ErrClosed. It may be called more than once.
func (e *Encoder) Close() {
	e.gate.close()
	e.freed.Do(func() {
		if i := e.escaping.instance; i != nil {
			i.free()
		}
		e.pool.free()
	})
}
