//go:build !linux

package indexer

import "unsafe"

// adviseHuge does nothing where there is nothing to ask.
func adviseHuge(unsafe.Pointer, uintptr) {}
