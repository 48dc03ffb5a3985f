package enginesim

import (
	"errors"
	"math/rand/v2"
	"net"
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

// nextPort is of the whole process; processes begin anywhere.
var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(numPorts)) }

// FreeAddr returns a HOST:PORT of the loopback interface on which nobody
// listens, and which is not returned again. Unlike a port that the kernel chose
// and that was let go, it is not given to another socket later.
func FreeAddr() (string, error) {
	for range numPorts {
		port := firstPort + nextPort.Add(1)%numPorts
		addr := net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(port), 10))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no port is free on 127.0.0.1")
}
