package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of times in /proc: 100 a second on every Linux.
const userHZ = 100

// cpuOf is the processor time of processes so far; those that have ended, or all
// where the system does not tell, count as 0.
func cpuOf(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if d, err := parseStat(string(b)); err == nil {
			sum += d
		}
	}
	return sum
}

// cpuOfAll is the processor time of everything on this machine so far, 0 where the
// system does not tell.
func cpuOfAll() time.Duration {
	b, _ := os.ReadFile("/proc/stat") // "" has no fields
	return parseTotal(string(b))
}

// parseTotal returns what the first line of /proc/stat has beside idle time and
// waiting for disks (proc(5)): user, nice, system, irq, softirq, steal.
func parseTotal(text string) time.Duration {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // 0 where it is none
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ
}

// parseStat returns utime + stime of a line of /proc/PID/stat: fields 14 and
// 15 (proc(5)). The second is a name that may hold anything.
func parseStat(line string) (time.Duration, error) {
	i := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[i+1:])
	if i < 0 || len(fields) < 13 {
		return 0, errors.New("cannot read /proc/PID/stat: it has too few fields")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read /proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}
