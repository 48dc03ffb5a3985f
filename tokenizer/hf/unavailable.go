//go:build nohf || !cgo || !(amd64 || arm64)

package hf

// Encoder stands for the one of a build with the library; there is none of it here.
type Encoder struct{}

// Available reports whether this build has the library.
func Available() bool { return false }

// New returns ErrUnavailable, or what is wrong with the options.
func New(_ []byte, o Options) (*Encoder, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return nil, ErrUnavailable
}

// Append returns ErrUnavailable.
func (*Encoder) Append(dst []uint32, _ string) ([]uint32, error) { return dst, ErrUnavailable }

// AppendSpecial returns ErrUnavailable.
func (*Encoder) AppendSpecial(dst []uint32, _ string) ([]uint32, error) { return dst, ErrUnavailable }

// Close does nothing.
func (*Encoder) Close() {}
