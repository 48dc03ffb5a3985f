//go:build !linux

package snapshot

// Room returns an empty slice with room for n bytes, and what gives the room
// back: after that nothing may be left that refers to it.
func Room(n int) (b []byte, release func()) { return make([]byte, 0, n), func() {} }
