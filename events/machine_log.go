package events

// This file is about streams that come out of a log (NATS JetStream) instead
// of from the engine itself. A relay beside the engine writes them there, and
// two things are different:
//
//   - Every batch names the process that published it, by a boot id that the
//     relay makes up when it notices a new one. So nothing needs to be proved
//     with CRCs: equal boot ids and contiguous seqs are continuity.
//   - Boot ids sort in the order in which their processes began. So a greater
//     one ends the incarnation, and messages of a lesser one are dropped,
//     however often the log is read again and from wherever.
//   - Only the log begins incarnations. A replay, which does not come out of the
//     log, fills in what is missing of the present one.
//
// What the log has lost is a gap in the seqs, like any other, and the relay is
// asked for it. Whether the end of the log is the end of the stream cannot be
// seen there: the relay says now and then how far it has come, and the
// transport compares (see Session.Position).

// logState is what the machine knows of a stream that comes out of a log.
type logState struct {
	log  bool   // it does
	boot string // the present process, "" before the first message
	down bool   // the transport said so, and has not taken it back
	told uint64 // the seq that comes next, as the relay said when it was compared
}

// behind reports whether batches are known, or must be feared, to be missing at
// the end.
func (m *machine) behind() bool { return m.open || m.next < m.told }

// enter goes on to the process that a message of the log names, and reports
// whether the message may be used: not if that process has ended.
func (m *machine) enter(boot string) bool {
	switch {
	case !m.log:
		return true
	case boot == m.boot:
		m.restored = false // the process that the snapshot tells of goes on
		return true
	case boot < m.boot:
		return false
	}
	m.met = true
	if m.boot != "" {
		m.newIncarnation(whyBoot)
	}
	m.boot, m.told = boot, 0
	return true
}

// resume sets the position of a stream that was followed before by another
// process of ours: the batch that was applied last. The first contact proves
// it, as it does after any connection that broke. It must be the first call.
func (m *machine) resume(seq uint64, crc uint32) {
	m.started, m.next = true, seq+1
	m.recent.put(seq, crc)
}
