package enginesim

import "fmt"

// Encoding is a revision of the payload layout. Arrays carry every field of
// their revision, nil or not; maps carry a field with a default only where it
// differs from it.
type Encoding uint8

// vLLM's revisions, by the release that first had them, then SGLang's.
const (
	R1 Encoding = iota + 1 // v0.9.0: events of 6 fields, a batch of 2
	R2                     // v0.9.1: the batch gains the rank
	R3                     // v0.10.2: the shape of R2, hashes unsigned or bytes
	R4                     // by v0.11.0: medium
	R5                     // about v0.14: lora_name
	R6                     // v0.17.0: extra_keys
	R7                     // about v0.20: group_idx
	R8                     // v0.22 and v0.23: kv_cache_spec_kind, kv_cache_spec_sliding_window
	R9                     // v0.24.0 and later: events are maps; later keys where they are set

	S1 // 6 fields, a batch of 2
	S2 // up to 0.5.8: the batch gains the rank
	S3 // 0.5.9 to 0.5.16: medium
	S4 // 0.5.18: an eighth field, a map with the salt, in salted events only
	S5 // 0.5.20 and later: maps

	lastEncoding = S5
)

// DefaultEncoding is the one that the zero value of an option means.
const DefaultEncoding = R9

// String returns the revision's name.
func (e Encoding) String() string {
	switch {
	case e >= R1 && e <= R9:
		return fmt.Sprintf("R%d", e)
	case e >= S1 && e <= S5:
		return fmt.Sprintf("S%d", e-S1+1)
	}
	return "unknown"
}

// replayLayout is the layout of replays that releases with this encoding had
// first.
func (e Encoding) replayLayout() ReplayLayout {
	if e == R9 || e == S5 {
		return ReplayWithTopic
	}
	return ReplayWithoutTopic
}

func (e Encoding) isMap() bool { return e == R9 || e == S5 }

// AppendBatch appends the payload frame of b in the layout of e to dst and
// returns it, byte for byte what msgspec writes. The batch itself is an array
// in every release.
func (e Encoding) AppendBatch(dst []byte, b Batch) []byte {
	two := e == R1 || e == S1
	if two {
		dst = appendArrayLen(dst, 2)
	} else {
		dst = appendArrayLen(dst, 3)
	}
	dst = appendFloat(dst, b.Time)
	dst = appendArrayLen(dst, len(b.Events))
	for i := range b.Events {
		dst = e.appendEvent(dst, &b.Events[i])
	}
	switch {
	case two:
		return dst
	case b.NoRank:
		return appendNil(dst)
	}
	return appendInt(dst, int64(b.Rank))
}

func (e Encoding) appendEvent(dst []byte, ev *Event) []byte {
	switch {
	case e.isMap() && ev.Kind == Stored:
		return e.appendStoredMap(dst, ev)
	case e.isMap() && ev.Kind == Removed:
		return e.appendRemovedMap(dst, ev)
	case e.isMap():
		return appendString(appendString(appendMapLen(dst, 1), "type"), "AllBlocksCleared")
	case ev.Kind == Stored:
		return e.appendStoredArray(dst, ev)
	case ev.Kind == Removed:
		return e.appendRemovedArray(dst, ev)
	}
	return appendString(appendArrayLen(dst, 1), "AllBlocksCleared")
}

// storedFields and removedFields are the lengths of the arrays, tag included.
var (
	storedFields  = [...]int{R1: 6, R2: 6, R3: 6, R4: 7, R5: 8, R6: 9, R7: 10, R8: 12, S1: 6, S2: 6, S3: 7, S4: 7}
	removedFields = [...]int{R1: 2, R2: 2, R3: 2, R4: 3, R5: 3, R6: 3, R7: 4, R8: 4, S1: 2, S2: 2, S3: 3, S4: 3}
)

func (e Encoding) appendStoredArray(dst []byte, ev *Event) []byte {
	n := storedFields[e]
	salted := e == S4 && ev.Salt != ""
	if salted {
		n++
	}
	dst = appendArrayLen(dst, n)
	dst = appendString(dst, "BlockStored")
	dst = appendHashes(dst, ev.Hashes)
	dst = appendParent(dst, ev)
	dst = appendTokens(dst, ev)
	dst = appendInt(dst, int64(ev.BlockSize))
	dst = appendPositive(dst, ev.LoRAID)
	if n > 6 {
		dst = appendText(dst, ev.Medium)
	}
	if salted {
		return appendString(appendString(appendMapLen(dst, 1), "cache_salt"), ev.Salt)
	}
	if n > 7 {
		dst = appendText(dst, ev.LoRAName)
	}
	if n > 8 {
		dst = appendExtra(dst, ev.Extra)
	}
	if n > 9 {
		dst = appendGroup(dst, ev.Group)
	}
	if n > 10 {
		dst = appendText(dst, ev.SpecKind)
		dst = appendPositive(dst, ev.Window)
	}
	return dst
}

func (e Encoding) appendRemovedArray(dst []byte, ev *Event) []byte {
	n := removedFields[e]
	dst = appendArrayLen(dst, n)
	dst = appendString(dst, "BlockRemoved")
	dst = appendHashes(dst, ev.Hashes)
	if n > 2 {
		dst = appendText(dst, ev.Medium)
	}
	if n > 3 {
		dst = appendGroup(dst, ev.Group)
	}
	return dst
}

func (e Encoding) appendStoredMap(dst []byte, ev *Event) []byte {
	m := openMap(dst, "BlockStored")
	m.b = appendHashes(m.key("block_hashes"), ev.Hashes)
	m.b = appendParent(m.key("parent_block_hash"), ev)
	m.b = appendTokens(m.key("token_ids"), ev)
	m.b = appendInt(m.key("block_size"), int64(ev.BlockSize))
	if e == S5 {
		m.b = appendNil(m.key("lora_id")) // nil in every event of every version, also with LoRA
		m.text("medium", ev.Medium)
		m.text("cache_salt", ev.Salt)
		m.text("session_id", ev.SessionID)
		m.text("lora_name", ev.LoRAName)
		return m.close()
	}
	m.b = appendPositive(m.key("lora_id"), ev.LoRAID)
	m.b = appendText(m.key("medium"), ev.Medium)
	m.b = appendText(m.key("lora_name"), ev.LoRAName)
	if ev.Extra != nil {
		m.b = appendExtra(m.key("extra_keys"), ev.Extra)
	}
	m.group(ev.Group)
	m.text("kv_cache_spec_kind", ev.SpecKind)
	if ev.Window != 0 {
		m.b = appendInt(m.key("kv_cache_spec_sliding_window"), int64(ev.Window))
	}
	m.text("locality", ev.Locality)
	m.text("ownership", ev.Ownership)
	m.text("session_id", ev.SessionID)
	return m.close()
}

func (e Encoding) appendRemovedMap(dst []byte, ev *Event) []byte {
	m := openMap(dst, "BlockRemoved")
	m.b = appendHashes(m.key("block_hashes"), ev.Hashes)
	if e == S5 {
		m.text("medium", ev.Medium)
		return m.close()
	}
	m.b = appendText(m.key("medium"), ev.Medium)
	m.group(ev.Group)
	m.text("locality", ev.Locality)
	m.text("ownership", ev.Ownership)
	return m.close()
}

// mapWriter writes one event as a map. The number of keys is known only at
// the end; it stays below 16, so that the header is one byte.
type mapWriter struct {
	b      []byte
	header int
	n      int
}

func openMap(dst []byte, tag string) mapWriter {
	m := mapWriter{b: append(dst, 0), header: len(dst)}
	m.b = appendString(m.key("type"), tag)
	return m
}

// key appends a key; the caller appends its value.
func (m *mapWriter) key(name string) []byte {
	m.n++
	return appendString(m.b, name)
}

// text appends a string whose default is nil.
func (m *mapWriter) text(name, v string) {
	if v != "" {
		m.b = appendString(m.key(name), v)
	}
}

func (m *mapWriter) group(g int) {
	if g != NoGroup {
		m.b = appendInt(m.key("group_idx"), int64(g))
	}
}

func (m *mapWriter) close() []byte {
	m.b[m.header] = 0x80 | byte(m.n)
	return m.b
}

func appendHashes(dst []byte, hs []Hash) []byte {
	dst = appendArrayLen(dst, len(hs))
	for _, h := range hs {
		dst = appendHash(dst, h)
	}
	return dst
}

func appendParent(dst []byte, ev *Event) []byte {
	if !ev.HasParent {
		return appendNil(dst)
	}
	return appendHash(dst, ev.Parent)
}

func appendTokens(dst []byte, ev *Event) []byte {
	if ev.Bigram {
		dst = appendArrayLen(dst, len(ev.Tokens)/2)
		for i := 0; i+1 < len(ev.Tokens); i += 2 {
			dst = appendArrayLen(dst, 2)
			dst = appendUint(dst, uint64(ev.Tokens[i]))
			dst = appendUint(dst, uint64(ev.Tokens[i+1]))
		}
		return dst
	}
	dst = appendArrayLen(dst, len(ev.Tokens))
	for _, t := range ev.Tokens {
		dst = appendUint(dst, uint64(t))
	}
	return dst
}

// appendPositive writes v, and nil where it is 0.
func appendPositive(dst []byte, v int) []byte {
	if v == 0 {
		return appendNil(dst)
	}
	return appendInt(dst, int64(v))
}

func appendGroup(dst []byte, g int) []byte {
	if g == NoGroup {
		return appendNil(dst)
	}
	return appendInt(dst, int64(g))
}

func appendExtra(dst []byte, extra [][]ExtraKey) []byte {
	if extra == nil {
		return appendNil(dst)
	}
	dst = appendArrayLen(dst, len(extra))
	for _, keys := range extra {
		if keys == nil {
			dst = appendNil(dst)
			continue
		}
		dst = appendArrayLen(dst, len(keys))
		for _, k := range keys {
			switch {
			case k.Digest != nil:
				dst = appendBytes(dst, k.Digest)
			case k.HasOffset:
				dst = appendInt(appendString(appendArrayLen(dst, 2), k.Text), k.Offset)
			default:
				dst = appendString(dst, k.Text)
			}
		}
	}
	return dst
}
