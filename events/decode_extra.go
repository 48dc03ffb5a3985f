package events

// readExtra reads extra_keys: nil, or a list with an entry a block, each nil
// or the list of the keys that the engine hashed with the block's tokens.
// Nearly always all entries are nil, and then nothing is kept.
func (d *Decoder) readExtra(ev *Event) SkipReason {
	if d.cur.isNil() {
		return ""
	}
	n, ok := d.cur.arrayLen()
	if !ok {
		return SkipBadField
	}
	ev.HasExtra, ev.ExtraLen = true, n
	i := 0
	for i < n && d.cur.isNil() {
		i++
	}
	if i == n {
		return ""
	}
	if !d.takeExtra(n) {
		return SkipTooLarge
	}
	blocks := d.blocks.take(n)
	clear(blocks)
	some := false
	for ; i < n; i++ {
		if d.cur.isNil() {
			continue
		}
		var reason SkipReason
		if blocks[i], reason = d.blockExtra(); reason != "" {
			return reason
		}
		some = some || len(blocks[i]) > 0
	}
	if some {
		ev.Extra = blocks
	}
	return ""
}

// takeExtra counts n entries or keys against the limit. It exists because a
// key of one byte on the wire takes 32 in memory.
func (d *Decoder) takeExtra(n int) bool {
	d.extra += n
	return d.extra <= d.limits.MaxExtra
}

func (d *Decoder) blockExtra() (BlockExtra, SkipReason) {
	n, ok := d.cur.arrayLen()
	if !ok {
		return nil, SkipBadField
	}
	if !d.takeExtra(n) {
		return nil, SkipTooLarge
	}
	keys := d.keys.take(n)
	for i := range keys {
		if reason := d.extraKey(&keys[i]); reason != "" {
			return nil, reason
		}
	}
	return keys, ""
}

// extraKey reads one key. What has none of the known shapes is kept as its
// msgpack bytes: it still distinguishes blocks.
func (d *Decoder) extraKey(key *ExtraKey) SkipReason {
	start := d.cur.pos
	var raw []byte
	if s, ok := d.cur.str(); ok {
		*key, raw = ExtraKey{Kind: ExtraString}, s
	} else if b, ok := d.cur.bin(); ok {
		*key, raw = ExtraKey{Kind: ExtraBytes}, b
	} else if id, offset, ok := d.offsetKey(); ok {
		*key, raw = ExtraKey{Kind: ExtraOffset, Offset: offset}, id
	} else {
		d.cur.pos = start
		if d.cur.skip(depthExtraKey) != nil {
			return SkipBadField
		}
		*key, raw = ExtraKey{Kind: ExtraOther}, d.cur.buf[start:d.cur.pos]
	}
	if len(raw) > d.limits.MaxString {
		return SkipTooLarge
	}
	key.Str = d.strings.str(raw)
	return ""
}

// offsetKey reads [id, offset]. It may move the position when it fails.
func (d *Decoder) offsetKey() (id []byte, offset int64, ok bool) {
	n, ok := d.cur.arrayLen()
	if !ok || n != 2 {
		return nil, 0, false
	}
	if id, ok = d.cur.str(); !ok {
		return nil, 0, false
	}
	offset, ok = d.cur.int64()
	return id, offset, ok
}
