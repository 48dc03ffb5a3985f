package relay

import "uuid"

// nextBoot makes a boot id that sorts after another, "" for none: a UUID of
// version 7, by the clock or, where that is behind, a millisecond after the
// other. ok is false if no id sorts after it.
func nextBoot(after string) (boot string, ok bool) {
	id := uuid.NewV7()
	if boot = id.String(); boot > after {
		return boot, true
	}
	last, err := uuid.Parse(after)
	if err != nil {
		return "", false
	}
	copy(id[:6], last[:6])
	for i := 5; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			boot = id.String()
			return boot, boot > after
		}
	}
	return "", false
}
