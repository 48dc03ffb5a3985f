//go:build nohf || !cgo || !(amd64 || arm64)

package hf

import (
	"errors"
	"testing"
)

func TestUnavailable(t *testing.T) {
	if Available() {
		t.Error("it says that it is available")
	}
	if e, err := New([]byte("{}"), Options{}); e != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("New: got %v, %v", e, err)
	}
	if _, err := New(nil, Options{MaxInput: -1}); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("bad options: got %v", err)
	}
	var e Encoder
	if ids, err := e.Append([]uint32{1}, "x"); len(ids) != 1 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Append: got %d, %v", ids, err)
	}
	if ids, err := e.AppendSpecial(nil, "x"); ids != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("AppendSpecial: got %d, %v", ids, err)
	}
	e.Close()
}
