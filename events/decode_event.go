package events

// event decodes the next event and appends it to the batch's good or bad
// ones.
//
// An event is decoded straight away, without looking for its end first: every
// read is bounded, and an event is only called good when all its values have
// been read or skipped one by one, so the position is then exactly behind it
// (the fuzz target checks that against skip). When anything is wrong, the
// event is skipped from its first byte: that finds its end whatever the
// decoding made of it, or finds that the payload is no msgpack, which rejects
// the batch. Looking first would give the same result at 1.7 times the cost.
func (d *Decoder) event(index int) *BatchError {
	start := d.cur.pos
	d.batch.Events = append(d.batch.Events, Event{Index: index, Group: -1})
	last := len(d.batch.Events) - 1
	reason := d.eventFields(&d.batch.Events[last])
	if reason == "" {
		return nil
	}
	d.batch.Events[last] = Event{}
	d.batch.Events = d.batch.Events[:last]
	d.batch.Skipped = append(d.batch.Skipped, Skip{Index: index, Reason: reason})
	d.cur.pos = start
	return d.cur.skip(depthEvent)
}

func (d *Decoder) eventFields(ev *Event) SkipReason {
	if n, ok := d.cur.arrayLen(); ok {
		return d.eventArray(ev, n)
	}
	if n, ok := d.cur.mapLen(); ok {
		return d.eventMap(ev, n)
	}
	return SkipBadShape
}

// kindOf reads the tag of an event.
func (d *Decoder) kindOf() (Kind, SkipReason) {
	tag, ok := d.cur.str()
	if !ok {
		return 0, SkipBadTag
	}
	switch string(tag) {
	case "BlockStored":
		return BlockStored, ""
	case "BlockRemoved":
		return BlockRemoved, ""
	case "AllBlocksCleared":
		return AllBlocksCleared, ""
	}
	return 0, SkipUnknownTag
}

// The fields of events in the form of arrays, by position, and how many of
// them an event needs. Every revision only appended, so one table reads all.
var (
	storedLayout = [...]field{fieldType, fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID,
		fieldMedium, fieldLoRAOrMeta, fieldExtra, fieldGroup, fieldSpecKind, fieldWindow}
	removedLayout = [...]field{fieldType, fieldHashes, fieldMedium, fieldGroup}
	clearedLayout = [...]field{fieldType}
)

const (
	storedNeeds  = 5 // up to block_size
	removedNeeds = 2
	clearedNeeds = 1
)

func (d *Decoder) eventArray(ev *Event, n int) (reason SkipReason) {
	if n == 0 {
		return SkipBadShape
	}
	if ev.Kind, reason = d.kindOf(); reason != "" {
		return reason
	}
	var layout []field
	var needs int
	switch ev.Kind {
	case BlockStored:
		layout, needs = storedLayout[:], storedNeeds
	case BlockRemoved:
		layout, needs = removedLayout[:], removedNeeds
	default:
		layout, needs = clearedLayout[:], clearedNeeds
	}
	if n < needs {
		return SkipBadShape
	}
	for i := 1; i < n; i++ {
		f := fieldUnknown
		if i < len(layout) {
			f = layout[i]
		}
		if reason := d.field(ev, f); reason != "" {
			return reason
		}
	}
	return ""
}

// eventMap reads an event in the form of a map with n entries. The tag comes
// first from every engine, but need not.
//
// A key given twice makes the event bad: decoders differ in which of the two
// counts, and one that clears a pod should not be a matter of taste. That
// holds for the keys that are read, not for those that are skipped.
func (d *Decoder) eventMap(ev *Event, n int) (reason SkipReason) {
	if n == 0 {
		return SkipBadShape
	}
	start := d.cur.pos
	if ev.Kind, reason = d.findTag(n); reason != "" {
		return reason
	}
	seen := setOf(fieldType)
	if d.cur.pos == start {
		seen = 0 // the tag was not the first entry: it comes by
	} else {
		n--
	}
	wanted := fieldsOf(ev.Kind)
	for range n {
		f := fieldUnknown
		if key, ok := d.cur.str(); ok {
			f = fieldOf(key)
		} else if d.cur.skip(depthEventField) != nil {
			return SkipBadShape
		}
		if !wanted.has(f) {
			f = fieldUnknown
		}
		if f != fieldUnknown && seen.has(f) {
			if f == fieldType {
				return SkipBadTag
			}
			return SkipBadField
		}
		seen.add(f)
		if reason := d.field(ev, f); reason != "" {
			return reason
		}
	}
	if !seen.hasAll(neededBy(ev.Kind)) {
		return SkipBadShape
	}
	return ""
}

// findTag reads the tag of a map with n entries, which is the value of its
// first key "type". If that is the first entry, the position moves behind it,
// otherwise it stays.
func (d *Decoder) findTag(n int) (kind Kind, reason SkipReason) {
	start := d.cur.pos
	for i := range n {
		key, ok := d.cur.str()
		if ok && string(key) == "type" {
			kind, reason = d.kindOf()
			if i > 0 {
				d.cur.pos = start
			}
			return kind, reason
		}
		if !ok && d.cur.skip(depthEventField) != nil {
			return 0, SkipBadShape
		}
		if d.cur.skip(depthEventField) != nil {
			return 0, SkipBadShape
		}
	}
	return 0, SkipBadTag
}
