package natssource_test

import (
	"testing"

	"github.com/kvindex/kvindex/events/enginesim"
)

func TestFollowOverNATS(t *testing.T) {
	r := newRig(t)
	e := r.engine(enginesim.EngineOptions{Ranks: 2, Pool: enginesim.PoolOptions{Blocks: 40}})
	work(t, e, 30) // before anybody listens
	r.relay("ns/pod-0", e, nil)
	k := r.reader(nil)
	k.awaitTruth("ns/pod-0", e)
	work(t, e, 30)
	k.awaitTruth("ns/pod-0", e)
	late := r.reader(nil) // reads the log from its beginning
	late.awaitTruth("ns/pod-0", e)
	work(t, e, 30)
	k.awaitTruth("ns/pod-0", e)
	late.awaitTruth("ns/pod-0", e)
}
