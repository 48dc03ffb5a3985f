package enginesim

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// bootWait is how long a restart tries to bind its ports again.
const bootWait = 5 * time.Second

// Player plays a recording over real sockets, a PUB and a ROUTER for each of
// its streams, one step at a time and at the caller's pace. It buffers what it
// has played, so that a client that comes late can ask for a replay. All methods
// are safe for concurrent use, but the order of steps is the caller's.
type Player struct {
	streams []PlayerStream
	byPod   map[string]*Stream
}

// PlayerStream is the publisher of one stream of a recording.
type PlayerStream struct {
	StreamInfo
	*Stream
}

// NewPlayer binds the sockets of all streams of rec. A fixed port in o is that
// of the first stream, those of the others are the ports above it. The
// recording's replay layout stands in for ReplayDefault.
func NewPlayer(rec *Recording, o StreamOptions) (*Player, error) {
	if o.Layout == ReplayDefault {
		o.Layout = rec.Layout
	}
	p := &Player{byPod: map[string]*Stream{}}
	for i, info := range rec.Streams {
		s, err := startAt(o, i)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot play stream %q of %q: %w", info.Pod, rec.Name, err), p.Close())
		}
		p.streams = append(p.streams, PlayerStream{info, s})
		p.byPod[info.Pod] = s
	}
	return p, nil
}

// startAt starts the i-th of several streams.
func startAt(o StreamOptions, i int) (*Stream, error) {
	for _, endpoint := range []*string{&o.Endpoint, &o.ReplayEndpoint} {
		if *endpoint == "" {
			continue
		}
		var err error
		if *endpoint, err = offsetEndpoint(*endpoint, i); err != nil {
			return nil, err
		}
	}
	o.Seed = o.Seed<<16 + uint64(i)
	return StartStream(o)
}

// Streams returns the streams, in the order of Recording.Streams.
func (p *Player) Streams() []PlayerStream { return p.streams }

// Stream returns the stream of a pod, nil if there is none.
func (p *Player) Stream(pod string) *Stream { return p.byPod[pod] }

// Play plays one step: it publishes, or restarts a process. It returns when ZMQ
// has the message, or when the new process has its sockets. An Ask or a Marker
// does nothing: it is the caller's.
func (p *Player) Play(s Step) error {
	switch s := s.(type) {
	case Publish:
		return p.publish(s)
	case Restart:
		return p.restart(s.Pod)
	}
	return nil
}

func (p *Player) publish(m Publish) error {
	s := p.byPod[m.Pod]
	if s == nil {
		return fmt.Errorf("cannot publish: no stream %q", m.Pod)
	}
	if err := s.PublishAs(m.Topic, m.Seq, m.Payload); err != nil {
		return fmt.Errorf("cannot publish batch %d of %q: %w", m.Seq, m.Pod, err)
	}
	return nil
}

// restart closes the sockets of a stream, forgets its replay buffer and binds
// the same ports again.
func (p *Player) restart(pod string) error {
	s := p.byPod[pod]
	if s == nil {
		return fmt.Errorf("cannot restart: no stream %q", pod)
	}
	if err := errors.Join(s.Kill(), s.Boot(bootWait)); err != nil {
		return fmt.Errorf("cannot restart %q: %w", pod, err)
	}
	return nil
}

// WaitSubscribers waits until every stream has a subscription: before the
// first step, and after a Restart, where a step that comes before the
// subscriber is back is lost to it, as in life.
func (p *Player) WaitSubscribers(ctx context.Context) error {
	for _, s := range p.streams {
		if err := s.WaitSubscribers(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all sockets.
func (p *Player) Close() error {
	var err error
	for _, s := range p.streams {
		err = errors.Join(err, s.Stream.Close())
	}
	return err
}
