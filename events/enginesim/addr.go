package enginesim

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Ports below those that kernels give to whoever names none (from 32768 on
// with Linux, from 49152 elsewhere): one that is free stays free while its
// engine is down or not there yet.
const (
	firstPort = 12_000
	numPorts  = 8_000
)

// taken counts the ports that FreeAddr has returned: ports are the process's, and
// so is this.
var taken atomic.Uint32

// FreeAddr returns a HOST:PORT of the loopback interface on which nobody
// listens, and which is not returned again. Unlike a port that the kernel chose
// and that was let go, it is not given to another socket later.
func FreeAddr() (string, error) {
	begin := uint32(os.Getpid()) * 641 // other processes begin elsewhere
	for range numPorts {
		port := firstPort + (begin+taken.Add(1))%numPorts
		addr := net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(port), 10))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no port is free on 127.0.0.1")
}
