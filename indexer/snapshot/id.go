package snapshot

import (
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// ID names a snapshot: a ULID, 48 bits of milliseconds and 80 random ones. Ids
// compare like their texts.
type ID = ulid.ULID

// ParseID reads the text of an id, 26 letters and digits in upper case.
func ParseID(text string) (ID, error) {
	id, err := ulid.ParseStrict(text)
	if err == nil && id.String() != text {
		err = ulid.ErrInvalidCharacters
	}
	return id, err
}

// IDs makes ids. Each is greater than the one before. The zero value is ready;
// it is safe for concurrent use.
type IDs struct {
	mu   sync.Mutex
	last ID
}

// Next returns an id for a snapshot that begins now, greater than after and
// than all that came from s. It ends up later than now only if the clock has
// gone back or another machine's clock is ahead.
func (s *IDs) Next(now time.Time, after ID) ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := ulid.New(ulid.Timestamp(now), ulid.DefaultEntropy())
	if err == nil && id.Compare(after) <= 0 {
		// Others may be at the same point: the random bits keep us apart.
		err = id.SetTime(after.Time() + 1)
	}
	if after.Compare(s.last) < 0 {
		after = s.last
	}
	if err != nil || id.Compare(after) <= 0 { // err: beyond the year 10889
		id = after
		increment(&id)
	}
	s.last = id
	return id
}

// increment adds one, with the random bits' overflow going into the time.
func increment(id *ID) {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			return
		}
	}
}
