package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvindex/kvindex/events/discovery"
	"github.com/kvindex/kvindex/events/natssource"
	"github.com/kvindex/kvindex/events/natssource/relay"
	"github.com/kvindex/kvindex/events/zmqsource"
)

// relayEnvPrefix begins the variables that are flags of `kvindex relay`.
const relayEnvPrefix = envPrefix + "RELAY_"

// relayFlags are the flags of `kvindex relay`.
type relayFlags struct {
	relay.Options
	endpoint, replay, topic string
	ranks, firstRank        int
	listen                  string
	log                     logConfig
}

func newRelayCommand() *cobra.Command {
	var o relayFlags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish an engine's events to NATS JetStream, beside it",
		Long: `Follow an engine on the loopback interface and publish every batch, unchanged,
to NATS JetStream, for kvindex serve (nats.url) to read: for fleets whose pods
cannot be dialled, or that many replicas follow. One relay an engine, as a
sidecar.

The stream is created if it is not there. One that is there must have the same
limits, else the relay ends and names the differences; --update-stream changes
it instead. While NATS is away, batches wait in a bounded buffer; what does not
fit is let go from its oldest end and shows as a gap. Batches that a reader
lacks are sent again on request, from the buffer or from the engine's replay
socket: give it --replay-endpoint.

--listen answers /healthz, /readyz (NATS and the engine are connected) and
/metrics. Every flag is also an environment variable: KVINDEX_RELAY_ and the
name in upper case with _ for - (KVINDEX_RELAY_NATS_URL). Flags win.`,
		Example: `  kvindex relay --nats-url nats://nats:4222 --instance default/pod-0 --model Qwen/Qwen3-0.6B \
    --endpoint tcp://127.0.0.1:5557 --replay-endpoint tcp://127.0.0.1:6557
  kvindex relay ... --dp-ranks 4                      ranks 0-3 at consecutive ports
  kvindex relay ... --max-age 30m --update-stream     other limits than the stream has
  kvindex serve --config kvindex.yaml                 with nats: {url: "nats://nats:4222"}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flagsFromEnv(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			return runRelay(cmd.Context(), o, newLogger(cmd.ErrOrStderr(), o.log))
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *relayFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.Connect.URL, "nats-url", "", "`URL` of NATS, or several with commas")
	f.StringVar(&o.Connect.CredentialsFile, "credentials-file", "", "credentials `file` of a NATS user")
	f.StringVar(&o.Connect.TokenFile, "token-file", "", "`file` with a NATS token")
	f.StringVar(&o.Connect.CAFile, "ca-file", "", "PEM `file` of the roots for TLS (default the system's)")
	f.StringVar(&o.Connect.CertFile, "cert-file", "", "PEM `file` of our certificate")
	f.StringVar(&o.Connect.KeyFile, "key-file", "", "PEM `file` of its key")
	f.StringVar(&o.Instance, "instance", "", "`id` of the engine, as routers know it: namespace/pod, for example")
	f.StringVar(&o.Model, "model", "", "`name` of the model that it serves")
	f.StringVar(&o.endpoint, "endpoint", "tcp://127.0.0.1:5557", "the engine's event `address` (rank 0)")
	f.StringVar(&o.replay, "replay-endpoint", "", "its replay `address` (rank 0)")
	f.StringVar(&o.topic, "topic", "", "subscription `prefix` (default everything)")
	f.IntVar(&o.ranks, "dp-ranks", 1, "`number` of data-parallel ranks, at consecutive ports")
	f.IntVar(&o.firstRank, "first-rank", 0, "`rank` at the address given, where a group spans several engines")
	f.StringVar(&o.Stream.Name, "stream", natssource.DefaultStream, "`name` of the JetStream stream")
	f.DurationVar(&o.Stream.MaxAge, "max-age", time.Hour, "limit of the stream: `age` of a message")
	f.Int64Var(&o.Stream.PerSubject, "max-per-subject", 20_000, "limit of the stream: `number` of messages of a rank")
	f.DurationVar(&o.Stream.Duplicates, "duplicates", 2*time.Minute, "limit of the stream: for how `long` it notices a message published twice")
	f.IntVar(&o.Stream.Replicas, "stream-replicas", 1, "`number` of replicas of the stream, if it has to be created")
	f.BoolVar(&o.Stream.Update, "update-stream", false, "change a stream that has other limits")
	f.IntVar(&o.BufferBatches, "buffer-batches", 20_000, "`number` of batches of a rank that are kept")
	f.IntVar(&o.BufferBytes, "buffer-bytes", 64<<20, "... and their `bytes`")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8401", "`address` of /healthz, /readyz and /metrics; empty: none")
	f.StringVar(&o.log.Level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.log.Format, "log-format", "text", "text or json")
}

// flagsFromEnv sets the flags that were not given from their variables. An
// unknown variable is an error that names the nearest one.
func flagsFromEnv(f *pflag.FlagSet, environ []string) error {
	flags := map[string]*pflag.Flag{}
	var names []string
	f.VisitAll(func(fl *pflag.Flag) {
		if fl.Name == "help" {
			return
		}
		name := relayEnvPrefix + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		flags[name] = fl
		names = append(names, name)
	})
	var errs []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, relayEnvPrefix) {
			continue
		}
		fl, known := flags[name]
		if !known {
			errs = append(errs, fmt.Errorf("environment: %s is no flag%s", name, nearest(name, names)))
			continue
		}
		if !fl.Changed {
			if err := fl.Value.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("environment: %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// options completes the relay's options by what the flags say.
func (o *relayFlags) options(log *slog.Logger, sockets *zmqsource.Source) (relay.Options, error) {
	if o.ranks < 1 || o.firstRank < 0 {
		return relay.Options{}, fmt.Errorf("%d ranks from %d on make no sense", o.ranks, o.firstRank)
	}
	var err error
	if o.Streams, err = discovery.Ranks(o.endpoint, o.replay, o.ranks); err != nil {
		return relay.Options{}, err
	}
	for i := range o.Streams {
		o.Streams[i].Rank += o.firstRank
		o.Streams[i].Topic = o.topic
	}
	o.Connect.Name = "kvindex relay of " + o.Instance
	o.Follow, o.Fetch, o.Logger = sockets.Follow, sockets.Fetch, log
	return o.Options, nil
}

// runRelay is `kvindex relay`.
func runRelay(ctx context.Context, o relayFlags, log *slog.Logger) (err error) {
	sockets, err := zmqsource.New(zmqsource.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sockets.Close()) }()
	opts, err := o.options(log, sockets)
	if err != nil {
		return err
	}
	r, err := relay.New(opts)
	if err != nil {
		return fmt.Errorf("cannot relay:\n%w", err)
	}
	defer r.Close()
	if o.listen != "" {
		lis, err := listen(ctx, o.listen)
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: r.Handler(), ReadHeaderTimeout: 5 * time.Second}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.Serve(lis) // ends with Close
		}()
		defer func() {
			_ = srv.Close() // nothing is lost with it
			<-done
		}()
		log.Info("the relay says how it is", "url", "http://"+lis.Addr().String()+"/readyz")
	}
	log.Info("kvindex relays", "instance", o.Instance, "model", o.Model, "endpoint", o.endpoint, "stream", o.Stream.Name, "version", version)
	return r.Run(ctx)
}
