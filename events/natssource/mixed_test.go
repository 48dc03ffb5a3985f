package natssource_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/events/natssource"
	"github.com/kvindex/kvindex/events/natssource/relay"
	"github.com/kvindex/kvindex/events/zmqsource"
	"github.com/kvindex/kvindex/indexer"
)

func zmqSpec(id string, e *enginesim.Engine) events.InstanceSpec {
	spec := events.InstanceSpec{ID: id, Model: model}
	for i := range e.Ranks() {
		spec.Streams = append(spec.Streams, events.StreamSpec{Rank: i, Endpoint: e.Endpoint(i), ReplayEndpoint: e.ReplayEndpoint(i)})
	}
	return spec
}

// TestSocketsAndNATS: some engines are dialled, others come over NATS, and none
// does both.
func TestSocketsAndNATS(t *testing.T) {
	r := newRig(t)
	dialled, relayed := r.engine(enginesim.EngineOptions{Seed: 1}), r.engine(enginesim.EngineOptions{Seed: 2})
	k := r.reader(nil)
	if _, err := k.fleet.Add(zmqSpec("dialled", dialled)); err != nil {
		t.Fatal(err)
	}
	r.relay("relayed", relayed, nil)
	work(t, dialled, 10)
	work(t, relayed, 10)
	k.awaitTruth("dialled", dialled)
	k.awaitTruth("relayed", relayed)

	// The second one is refused, whichever comes second.
	var conflict *events.ConflictError
	if _, err := k.fleet.Add(zmqSpec("relayed", relayed)); !errors.As(err, &conflict) || conflict.Field != "dp_rank 0 transport" {
		t.Errorf("error %v", err)
	}
	r.relay("dialled", dialled, nil)
	eventually(t, func() string {
		rep := k.source.Report()
		if len(rep.Refused) != 1 || rep.Refused[0].Instance != "dialled" || !errors.As(rep.Refused[0].Err, &conflict) {
			return fmt.Sprintf("refused: %+v", rep.Refused)
		}
		return ""
	})
	work(t, dialled, 10)
	k.awaitTruth("dialled", dialled)
	// Once it is not dialled any more it comes over NATS.
	k.fleet.Remove("dialled", nil)
	k.awaitTruth("dialled", dialled)
	if st, _ := k.status("dialled", 0); st.Transport() != events.TransportNATS {
		t.Errorf("follows %s", st.Endpoint)
	}
	eventually(t, func() string {
		if rep := k.source.Report(); len(rep.Refused) > 0 {
			return fmt.Sprintf("still refused: %+v", rep.Refused)
		}
		return ""
	})
}

// TestMaxStreams: whoever may publish names instances, and no more of them are
// followed than there may be.
func TestMaxStreams(t *testing.T) {
	r := newRig(t)
	e := r.engine(enginesim.EngineOptions{Seed: 1})
	k := r.reader(func(o *natssource.Options) { o.MaxStreams = 1 })
	r.relay("first", e, nil)
	work(t, e, 5)
	k.awaitTruth("first", e)
	r.relay("second", e, nil)
	r.relay("third", e, nil)
	work(t, e, 5)
	eventually(t, func() string {
		if rep := k.source.Report(); rep.Streams != 1 || len(rep.Refused) != 1 || !strings.Contains(rep.Refused[0].Err.Error(), "nats.max_streams") {
			return fmt.Sprintf("%d followed, refused: %+v", rep.Streams, rep.Refused)
		}
		return ""
	})
	k.awaitTruth("first", e)
}

// TestReplicasConverge: replicas that read the same stream, one of them
// started in the middle, hold the same.
func TestReplicasConverge(t *testing.T) {
	r := newRig(t)
	a := r.reader(nil)
	var list []*enginesim.Engine
	for i := range 4 {
		e := r.engine(enginesim.EngineOptions{Ranks: 2, Seed: uint64(i), Pool: enginesim.PoolOptions{Blocks: 60}})
		r.relay(fmt.Sprint("pod-", i), e, nil)
		list = append(list, e)
		work(t, e, 20)
	}
	b := r.reader(nil)
	for i, e := range list {
		work(t, e, 20)
		if i == 2 {
			check(t, e.Restart(enginesim.RestartOptions{Masked: true}))
		}
		work(t, e, 5)
	}
	for i, e := range list {
		a.awaitTruth(fmt.Sprint("pod-", i), e)
		b.awaitTruth(fmt.Sprint("pod-", i), e)
	}
	if da, db := dump(a), dump(b); da != db || da == "" {
		t.Errorf("the dumps differ: %d and %d bytes", len(da), len(db))
	}
}

// dump is all that a reader holds.
func dump(k *reader) string {
	var lines []string
	for _, tb := range k.index.Tables(model) {
		tb.Walk(func(b indexer.BlockInfo) bool {
			b.Holders = slices.Clone(b.Holders)
			slices.SortFunc(b.Holders, func(x, y indexer.BlockHolder) int {
				return cmp.Or(cmp.Compare(x.Stream.Instance, y.Stream.Instance), cmp.Compare(x.Stream.Rank, y.Stream.Rank), cmp.Compare(x.Tier, y.Tier))
			})
			line, err := json.Marshal(b)
			check(k.t, err)
			lines = append(lines, string(line))
			return true
		})
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestOnlySomeModels: a reader of one model does not hear of others.
func TestOnlySomeModels(t *testing.T) {
	r := newRig(t)
	e, other := r.engine(enginesim.EngineOptions{}), r.engine(enginesim.EngineOptions{})
	k := r.reader(func(o *natssource.Options) { o.Models = []string{model, "a third"} })
	r.relay("other", other, func(o *relay.Options) { o.Model = "another" }).awaitPublished(other)
	work(t, other, 5)
	r.relay(pod, e, nil)
	work(t, e, 5)
	k.awaitTruth(pod, e)
	if n := len(k.fleet.Instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
}

// TestSlowReader: a reader that cannot keep up loses nothing: the server waits.
func TestSlowReader(t *testing.T) {
	r := newRig(t)
	e := r.engine(enginesim.EngineOptions{Pool: enginesim.PoolOptions{Blocks: 300}})
	rel := r.relay(pod, e, nil)
	r.hold = make(chan struct{})
	k := r.reader(nil)
	check(t, e.Rank(0).Flood(5000))
	rel.awaitPublished(e)
	eventually(t, func() string {
		if n := k.source.Report().Messages; n < 100 {
			return fmt.Sprintf("%d messages came", n)
		}
		return ""
	})
	close(r.hold)
	k.awaitTruth(pod, e)
	if n := rel.Reports()[0].Answered; n != 0 {
		t.Errorf("the relay was asked for %d batches", n)
	}
	if st, _ := k.status(pod, 0); st.Counters.Lost != 0 {
		t.Errorf("lost %d", st.Counters.Lost)
	}
}

// TestMessagesTwiceAndOutOfOrder: what JetStream has twice or in another order
// changes nothing.
func TestMessagesTwiceAndOutOfOrder(t *testing.T) {
	r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
	work(t, e, 10)
	k.awaitTruth(pod, e)
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		st, err := js.Stream(ctx, natssource.DefaultStream)
		check(t, err)
		last := st.CachedInfo().State.LastSeq
		var msgs []*jetstream.RawStreamMsg
		for seq := last; seq > 0; seq-- {
			m, err := st.GetMsg(ctx, seq)
			check(t, err)
			msgs = append(msgs, m)
		}
		for _, m := range append(msgs, msgs[len(msgs)/2:]...) {
			m.Header.Del(nats.MsgIdHdr) // JetStream itself must not notice
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
			check(t, err)
		}
	})
	work(t, e, 10)
	k.awaitTruth(pod, e)
	late := r.reader(nil)
	late.awaitTruth(pod, e)
}

// TestForeignMessages: what is no batch costs nothing but itself.
func TestForeignMessages(t *testing.T) {
	r, e, _, k := followed(t, enginesim.EngineOptions{}, nil)
	subject := natssource.Name{Model: model, Instance: pod}.Events()
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		for _, m := range []*nats.Msg{
			{Subject: "kv.events.too.few", Data: []byte("x")},
			{Subject: subject, Data: []byte("no header")},
			{Subject: subject, Header: nats.Header{"Kv-Boot": {"x"}, "Kv-Seq": {"1"}, "Kv-Schema": {"1"}}},
			{Subject: subject, Header: nats.Header{"Kv-Schema": {"2"}}},
		} {
			_, err := js.PublishMsg(ctx, m)
			check(t, err)
		}
	})
	work(t, e, 5)
	k.awaitTruth(pod, e)
	if n := k.source.Report().Bad; n != 4 {
		t.Errorf("%d bad messages", n)
	}
}

// TestOtherLimits: a relay refuses a stream that is not what it would create,
// and names the differences.
func TestOtherLimits(t *testing.T) {
	r := newRig(t)
	r.admin(func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: natssource.DefaultStream, Subjects: []string{"kv.events.>"}, MaxAge: 2 * time.Hour, Storage: jetstream.FileStorage})
		check(t, err)
	})
	e := r.engine(enginesim.EngineOptions{})
	sockets, err := zmqsource.New(zmqsource.Options{})
	check(t, err)
	defer func() { check(t, sockets.Close()) }()
	rel, err := relay.New(relay.Options{Connect: r.connect(), Instance: pod, Model: model, Streams: zmqSpec(pod, e).Streams, Follow: sockets.Follow})
	check(t, err)
	defer rel.Close()
	err = rel.Run(t.Context())
	var le *relay.LimitsError
	if !errors.As(err, &le) || len(le.Differences) != 2 || !strings.Contains(err.Error(), "max age is 2h0m0s, not 1h0m0s") ||
		!strings.Contains(err.Error(), "max messages per subject is -1, not 20000") {
		t.Errorf("error %v", err)
	}
	work(t, e, 5)
	r.relay(pod, e, func(o *relay.Options) { o.Stream.Update = true })
	k := r.reader(nil)
	k.awaitTruth(pod, e)
}
