package main

import (
	"fmt"
	"runtime"

	zmq "github.com/pebbe/zmq4"
)

// versionLine tells what a bug report must say about the binary.
func versionLine() string {
	major, minor, patch := zmq.Version()
	return fmt.Sprintf("kvindex %s (%s, %s/%s, libzmq %d.%d.%d)",
		version, runtime.Version(), runtime.GOOS, runtime.GOARCH, major, minor, patch)
}
