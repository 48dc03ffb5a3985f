//go:build !linux

package snapshot

// onLowlyThread runs do: only Linux has priorities of threads.
func onLowlyThread(do func() error) error { return do() }
