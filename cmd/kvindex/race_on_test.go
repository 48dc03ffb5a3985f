//go:build race

package main_test

// raceEnabled says that the binary under test gets the race detector too.
const raceEnabled = true
