package events

// field names a field of an event, whatever its position or key.
type field uint8

const (
	fieldUnknown field = iota // of a later revision: skipped
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldLoRAName
	fieldLoRAOrMeta // position 7: vLLM's lora_name, SGLang's map of metadata
	fieldMedium
	fieldExtra
	fieldGroup
	fieldSpecKind
	fieldWindow
	fieldLocality
	fieldOwnership
	fieldSalt
	fieldSession
)

type fieldSet uint32

func setOf(fields ...field) (s fieldSet) {
	for _, f := range fields {
		s.add(f)
	}
	return s
}

func (s *fieldSet) add(f field)               { *s |= 1 << f }
func (s fieldSet) has(f field) bool           { return s&(1<<f) != 0 }
func (s fieldSet) hasAll(other fieldSet) bool { return s&other == other }

var (
	clearedFields = setOf(fieldType, fieldMedium)
	removedFields = setOf(fieldType, fieldHashes, fieldMedium, fieldGroup, fieldSpecKind, fieldLocality,
		fieldOwnership, fieldSalt)
	storedFields = removedFields | setOf(fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldLoRAName,
		fieldExtra, fieldWindow, fieldSession)

	removedNeeded = setOf(fieldHashes)
	storedNeeded  = setOf(fieldHashes, fieldTokens, fieldBlockSize)
)

// fieldsOf says which fields of a kind of event are read; others are skipped
// as if unknown, so that what a removal does not need cannot spoil it.
func fieldsOf(k Kind) fieldSet {
	switch k {
	case BlockStored:
		return storedFields
	case BlockRemoved:
		return removedFields
	}
	return clearedFields
}

// neededBy says without which fields an event means nothing.
func neededBy(k Kind) fieldSet {
	switch k {
	case BlockStored:
		return storedNeeded
	case BlockRemoved:
		return removedNeeded
	}
	return 0
}

// fieldOf gives the field of a key.
func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoRAID
	case "lora_name":
		return fieldLoRAName
	case "medium":
		return fieldMedium
	case "extra_keys":
		return fieldExtra
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpecKind
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "locality":
		return fieldLocality
	case "ownership":
		return fieldOwnership
	case "cache_salt":
		return fieldSalt
	case "session_id":
		return fieldSession
	}
	return fieldUnknown
}

// field reads the next value as field f of ev.
func (d *Decoder) field(ev *Event, f field) SkipReason {
	switch f {
	case fieldHashes:
		return d.readHashes(ev)
	case fieldParent:
		return d.readParent(ev)
	case fieldTokens:
		return d.readTokens(ev)
	case fieldBlockSize:
		return d.readNatural(&ev.BlockSize, SkipBadSize)
	case fieldLoRAID:
		return d.readLoRAID(ev)
	case fieldLoRAName:
		return d.readString(&ev.LoRAName, SkipBadField)
	case fieldLoRAOrMeta:
		return d.readLoRAOrMeta(ev)
	case fieldMedium:
		return d.readMedium(ev)
	case fieldExtra:
		return d.readExtra(ev)
	case fieldGroup:
		return d.readOptional(&ev.Group)
	case fieldSpecKind:
		return d.readString(&ev.SpecKind, SkipBadField)
	case fieldWindow:
		return d.readOptional(&ev.Window)
	case fieldLocality:
		return d.readString(&ev.Locality, SkipBadField)
	case fieldOwnership:
		return d.readString(&ev.Ownership, SkipBadField)
	case fieldSalt:
		return d.readString(&ev.Salt, SkipBadField)
	case fieldSession:
		return d.readString(&ev.SessionID, SkipBadField)
	}
	if d.cur.skip(depthEventField) != nil {
		return SkipBadShape
	}
	return ""
}

func (d *Decoder) readHashes(ev *Event) SkipReason {
	n, ok := d.cur.arrayLen()
	if !ok {
		return SkipBadHash
	}
	if n > d.limits.MaxHashes {
		return SkipTooLarge
	}
	ev.Hashes = d.hashes.take(n)
	if !d.cur.hashes(ev.Hashes) {
		return SkipBadHash
	}
	return ""
}

func (d *Decoder) readParent(ev *Event) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	if ev.Parent, ev.HasParent = d.cur.hash(); !ev.HasParent {
		return SkipBadHash
	}
	return ""
}

// readTokens reads a list of token ids, or of pairs of them (EAGLE).
func (d *Decoder) readTokens(ev *Event) SkipReason {
	n, ok := d.cur.arrayLen()
	if !ok {
		return SkipBadTokens
	}
	ev.Bigram = n > 0 && typeName(d.cur.peek()) == "array"
	if ev.Bigram {
		n *= 2
		// A pair takes 3 bytes at least.
		if n > d.cur.remaining() {
			return SkipBadTokens
		}
	}
	if n > d.limits.MaxTokens {
		return SkipTooLarge
	}
	ev.Tokens = d.tokens.take(n)
	if ev.Bigram {
		ok = d.cur.pairs(ev.Tokens)
	} else {
		ok = d.cur.tokens(ev.Tokens)
	}
	if !ok {
		return SkipBadTokens
	}
	return ""
}

func (d *Decoder) readNatural(to *int, reason SkipReason) SkipReason {
	n, ok := d.cur.natural(maxRank)
	if !ok {
		return reason
	}
	*to = n
	return ""
}

// readOptional reads a number that may be nil, which leaves to as it is.
func (d *Decoder) readOptional(to *int) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	return d.readNatural(to, SkipBadField)
}

func (d *Decoder) readLoRAID(ev *Event) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	if ev.LoRAID, ev.HasLoRA = d.cur.int64(); !ev.HasLoRA {
		return SkipBadField
	}
	return ""
}

// readString reads a string that may be nil, which is the same as "".
func (d *Decoder) readString(to *string, reason SkipReason) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	s, ok := d.cur.str()
	if !ok {
		return reason
	}
	if len(s) > d.limits.MaxString {
		return SkipTooLarge
	}
	*to = d.strings.str(s)
	return ""
}

// readMedium is strict about "": it would read as nil, which means GPU, and
// no unknown medium may.
func (d *Decoder) readMedium(ev *Event) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	reason := d.readString(&ev.Medium, SkipBadMedium)
	if reason == "" && ev.Medium == "" {
		return SkipBadMedium
	}
	return reason
}

// readLoRAOrMeta reads position 7 of an array: vLLM (v0.14 to v0.23) has the
// name of the adapter there, SGLang (v0.5.18) a map of metadata.
func (d *Decoder) readLoRAOrMeta(ev *Event) SkipReason {
	n, ok := d.cur.mapLen()
	if !ok {
		return d.readString(&ev.LoRAName, SkipBadField)
	}
	const depth = depthEventField + 1
	var seen fieldSet
	for range n {
		f := fieldUnknown
		if key, ok := d.cur.str(); ok {
			f = fieldOf(key)
		} else if d.cur.skip(depth) != nil {
			return SkipBadField
		}
		switch f {
		case fieldSalt, fieldSession, fieldLoRAName:
			if seen.has(f) {
				return SkipBadField
			}
			seen.add(f)
			if reason := d.field(ev, f); reason != "" {
				return reason
			}
		default:
			if d.cur.skip(depth) != nil {
				return SkipBadField
			}
		}
	}
	return ""
}
