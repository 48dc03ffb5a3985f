//go:build !unix

package hub

import (
	"errors"
	"os"
)

// tryLock: without flock the same may be downloaded twice, which is safe.
func tryLock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
