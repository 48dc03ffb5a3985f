package enginesim

import (
	"net"
	"testing"
)

func TestFreeAddr(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		addr, err := FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if seen[addr] {
			t.Errorf("%s is returned twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; port >= 32_768 {
			t.Errorf("the kernel may give port %d to others", port)
		}
	}
}
