package zmqsource

import (
	"fmt"
	"time"
)

// connectHint is how long an engine may be out of reach before the operator
// is told what may be wrong.
const connectHint = 10 * time.Second

// hints looks, now and then, whether the operator should be told something.
func (st *stream) hints() {
	if st.hintAt.IsZero() || time.Now().Before(st.hintAt) {
		return
	}
	st.hintAt = time.Time{}
	switch {
	case st.connected.IsZero():
		st.session.Note(fmt.Sprintf("cannot connect to %s: is the engine up, with events enabled and publisher \"zmq\", and does its own endpoint contain a `*` (tcp://*:5557)? Without one vLLM connects instead of binding, and nobody can dial it", st.spec.Endpoint))
	case st.session.LastSeen().IsZero() && !st.session.Status().HasBatch:
		st.session.Note(fmt.Sprintf("nothing received for %.0f s from a connected pod: does its endpoint contain a `*`? Is this the event port, and does the topic begin with %q? (An engine that has served no request yet is silent too.)",
			st.source.opts.SilenceHint.Seconds(), st.spec.Topic))
	}
}

func handshakeHint(endpoint string) string {
	return fmt.Sprintf("%s answers, but not as a ZMQ publisher: is it the event port (not the replay or the HTTP port)?", endpoint)
}
