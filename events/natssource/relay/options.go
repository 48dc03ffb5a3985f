package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/natssource"
)

// Fetch asks an engine's replay socket for everything from seq from on, and
// hands it to take until that returns false or the answer ends.
type Fetch func(ctx context.Context, endpoint string, from uint64, take func(seq uint64, payload []byte) bool) error

// Options configure a Relay.
type Options struct {
	Connect  natssource.ConnectOptions
	Instance string
	Model    string
	Streams  []events.StreamSpec // the engine's sockets, one a rank

	Follow events.Source // how the engine is followed
	Fetch  Fetch         // how its replay socket is asked; nil: not at all

	Stream StreamLimits
	// BufferBatches and BufferBytes bound, for each rank, what waits for NATS
	// and what replays are served from. Defaults 20,000 and 64 MiB.
	BufferBatches int
	BufferBytes   int
	// StatusEvery is how often readers are told how far the relay is. Default
	// 2 s; readers take five times that for death.
	StatusEvery time.Duration
	Logger      *slog.Logger // nil: discard
}

// Validate reports everything that is wrong with the options.
func (o Options) Validate() error {
	errs := []error{o.Connect.Validate()}
	errs = append(errs, events.InstanceSpec{ID: o.Instance, Model: o.Model, Streams: o.Streams}.Validate())
	if o.Follow == nil {
		errs = append(errs, errors.New("there is no way to follow the engine"))
	}
	for _, st := range o.Streams {
		if st.Transport() != events.TransportZMQ {
			errs = append(errs, fmt.Errorf("dp_rank %d: endpoint %q is not a socket of an engine", st.Rank, st.Endpoint))
		}
	}
	if o.BufferBatches < 0 || o.BufferBytes < 0 {
		errs = append(errs, errors.New("a bound of the buffer is negative"))
	}
	return errors.Join(errs...)
}

func (o *Options) setDefaults() {
	o.Stream.setDefaults()
	if o.BufferBatches == 0 {
		o.BufferBatches = 20_000
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = 64 << 20
	}
	if o.StatusEvery <= 0 {
		o.StatusEvery = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
