package api

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
)

// scanner walks a JSON text that is wholly in memory. It knows the frame of
// objects and arrays; every value that is not taken by one of the fast
// parsers goes through jsontext, which decides what is valid.
//
// The frame is walked by hand for speed: arrays of tokens are the bulk of a
// request, and jsontext would pass over them once before we do.
type scanner struct {
	b   []byte
	i   int // offset of the next byte
	dec *jsontext.Decoder
	src bytes.Buffer
	key []byte // unescaped key or string, reused
}

// reset makes s read b, which must not change while s is in use.
func (s *scanner) reset(b []byte) {
	s.b, s.i = b, 0
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take consumes c if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() == c && s.i < len(s.b) {
		s.i++
		return true
	}
	return false
}

// object calls member for each member of the object that is next; member
// must consume the value. name is valid until the next call of s.
func (s *scanner) object(member func(name []byte) error) error {
	if !s.take('{') {
		return s.unexpected("'{' expected")
	}
	if s.take('}') {
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a member name expected")
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.unexpected("':' expected")
		}
		if err := member(name); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return nil
		}
		return s.unexpected("',' or '}' expected")
	}
}

// array calls element for each element of the array that is next; element
// must consume the value.
func (s *scanner) array(element func(n int) error) error {
	if !s.take('[') {
		return s.unexpected("'[' expected")
	}
	if s.take(']') {
		return nil
	}
	for n := 0; ; n++ {
		if err := element(n); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take(']') {
			return nil
		}
		return s.unexpected("',' or ']' expected")
	}
}

// end checks that nothing but white space is left.
func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return s.unexpected("nothing expected after the object")
	}
	return nil
}

// null consumes a null if it is next.
func (s *scanner) null() bool {
	if s.peek() == 'n' && bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += 4
		return true
	}
	return false
}

// value consumes any value and returns its bytes.
func (s *scanner) value() (jsontext.Value, error) {
	s.peek()
	s.src = *bytes.NewBuffer(s.b[s.i:])
	if s.dec == nil {
		s.dec = jsontext.NewDecoder(&s.src)
	} else {
		s.dec.Reset(&s.src)
	}
	v, err := s.dec.ReadValue()
	if err != nil {
		what := "an invalid value"
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			what = "the body ends inside a value"
		} else if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "a member name given twice in one object"
		}
		at := s.i
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			at += int(e.ByteOffset)
		}
		return nil, malformed(at, what)
	}
	s.i += int(s.dec.InputOffset())
	return v, nil
}

// text consumes a string and returns it unescaped. The bytes are valid until
// the next call of text, or point into the body.
func (s *scanner) text() ([]byte, error) {
	if raw := s.plain(); raw != nil {
		s.i += len(raw) + 2
		return raw, nil
	}
	v, err := s.value()
	if err != nil {
		return nil, err
	}
	if s.key, err = jsontext.AppendUnquote(s.key[:0], v); err != nil {
		return nil, malformed(s.i, "a string expected")
	}
	return s.key, nil
}

// plain returns what is between the quotes of the string that is next, if it
// is short ASCII without escapes: then it needs no validation. It consumes
// nothing.
func (s *scanner) plain() []byte {
	if s.peek() != '"' {
		return nil
	}
	b := s.b[s.i+1:]
	for i := 0; i < len(b) && i < 256; i++ {
		switch c := b[i]; {
		case c == '"':
			return b[:i:i]
		case c == '\\' || c < 0x20 || c >= 0x80:
			return nil
		}
	}
	return nil
}

// unexpected is the error of a byte that cannot be where it is. The byte is
// not shown: it may be of a prompt.
func (s *scanner) unexpected(what string) error {
	if s.peek(); s.i >= len(s.b) {
		return malformed(len(s.b), "the body ends, "+what)
	}
	return malformed(s.i, what)
}
