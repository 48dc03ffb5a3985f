package bpe

// alphabet maps the characters in which byte-level vocabularies write bytes to
// the bytes. Printable Latin-1 characters stand for themselves, the other
// bytes in order for U+0100, U+0101 and so on.
type alphabet [0x144]int16 // -1: stands for no byte

func newAlphabet() *alphabet {
	a := new(alphabet)
	for i := range a {
		a[i] = -1
	}
	next := 0x100
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			a[b] = int16(b)
		} else {
			a[next] = int16(b)
			next++
		}
	}
	return a
}

// decode returns the bytes that token stands for. It is false if a character
// stands for none: no text contains such a token.
func (a *alphabet) decode(token string) (string, bool) {
	b := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(a) || a[r] < 0 {
			return "", false
		}
		b = append(b, byte(a[r]))
	}
	return string(b), true
}
