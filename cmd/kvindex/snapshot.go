package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/kvindex/kvindex/indexer/snapshot"
	"github.com/kvindex/kvindex/indexer/snapshot/filestore"
	"github.com/kvindex/kvindex/indexer/snapshot/redisstore"
)

// snapshotFlags say where snapshots are, and how to show them.
type snapshotFlags struct {
	cluster      string
	passwordFile string
	caFile       string
	format       string
}

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Look at snapshots of the index", Args: cobra.NoArgs}
	var f snapshotFlags
	list := &cobra.Command{
		Use:   "ls DIR|URL",
		Short: "List the snapshots in a directory or in Redis",
		Long: `List the snapshots in a directory or in Redis, the newest first, by what they say
of themselves. Whether they are whole only verify knows, which reads them.

` + snapshotPlaces,
		Example: `  kvindex snapshot ls /var/lib/kvindex
  kvindex snapshot ls redis://10.0.0.1:6379 --cluster prod --password-file /etc/kvindex/redis
  kvindex snapshot ls /var/lib/kvindex --format json | jq -r .id`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.list(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	verify := &cobra.Command{
		Use:   "verify DIR|URL",
		Short: "Read every snapshot there and say whether it is whole",
		Long: `Read every snapshot in a directory or in Redis to its end, and compare each chunk
with its checksum. The exit status is 0 if all are whole, and there is one.

` + snapshotPlaces,
		Example: `  kvindex snapshot verify /var/lib/kvindex
  kvindex snapshot verify redis+sentinel://10.0.0.1,10.0.0.2/mymaster --cluster prod
  kvindex snapshot verify /var/lib/kvindex --format json | jq -c 'select(.ok | not)'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.verify(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	dump := newSnapshotDumpCommand(&f)
	for _, c := range []*cobra.Command{list, verify, dump} {
		c.Flags().StringVar(&f.cluster, "cluster", "default", "`name` of the fleet, in Redis")
		c.Flags().StringVar(&f.passwordFile, "password-file", "", "`file` with the password for Redis")
		c.Flags().StringVar(&f.caFile, "ca-file", "", "PEM `file` to check the server of rediss:// with")
		c.Flags().StringVar(&f.format, "format", "table", "table, or json: one object a line")
	}
	cmd.AddCommand(list, verify, dump)
	return cmd
}

const snapshotPlaces = `URL is redis://USER@HOST:PORT/DB, redis+sentinel://HOST,HOST/MASTER or
redis+cluster://HOST,HOST; rediss is TLS.`

// snapshotStore is what the commands need of a store.
type snapshotStore interface {
	snapshot.Source
	List(ctx context.Context) ([]snapshot.Info, error)
}

// open returns the store that place names.
func (f snapshotFlags) open(place string) (snapshotStore, func() error, error) {
	if f.format != "table" && f.format != "json" {
		return nil, nil, fmt.Errorf("cannot show snapshots as %q: --format is table or json", f.format)
	}
	if !strings.Contains(place, "://") {
		if st, err := os.Stat(place); err != nil {
			return nil, nil, fmt.Errorf("cannot look for snapshots: %w", err)
		} else if !st.IsDir() {
			return nil, nil, fmt.Errorf("cannot look for snapshots in %q: it is no directory", place)
		}
		s, err := filestore.New(filestore.Options{Dir: place})
		return s, func() error { return nil }, err
	}
	conn, err := redisstore.ParseURL(place)
	if err != nil {
		return nil, nil, err
	}
	conn.PasswordFile, conn.CAFile = f.passwordFile, f.caFile
	redis.SetLogger(quiet{}) // what it would say comes back as errors
	client, err := redisstore.Connect(conn)
	if err != nil {
		return nil, nil, err
	}
	s, err := redisstore.New(redisstore.Options{Client: client, Name: conn.String(), Cluster: f.cluster})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return s, client.Close, nil
}

// quiet is a logger of go-redis.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func (f snapshotFlags) list(ctx context.Context, place string, out io.Writer) (err error) {
	s, closeStore, err := f.open(place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	infos, err := s.List(ctx)
	if err != nil {
		return err
	}
	rows := make([]snapshotRow, 0, len(infos))
	for _, info := range infos {
		rows = append(rows, newSnapshotRow(info, info.Err))
	}
	return f.show(out, rows, "ok")
}

func (f snapshotFlags) verify(ctx context.Context, place string, out io.Writer) (err error) {
	s, closeStore, err := f.open(place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	var rows []snapshotRow
	all := true
	for before := (snapshot.ID{}); ; {
		begin := time.Now()
		info, err := readWhole(ctx, s, before)
		if errors.Is(err, snapshot.ErrNone) {
			break
		}
		if rejected := (*snapshot.RejectedError)(nil); err != nil && !errors.As(err, &rejected) {
			return err // the store's own: nothing is known about the snapshot
		}
		row := newSnapshotRow(info, err)
		row.TookMS = time.Since(begin).Milliseconds()
		rows, all, before = append(rows, row), all && err == nil, info.ID
	}
	if err := f.show(out, rows, "whole"); err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w in %s", snapshot.ErrNone, s)
	}
	if !all {
		return exitCode(1)
	}
	return nil
}

// readWhole reads the newest snapshot before an id to its end.
func readWhole(ctx context.Context, s snapshot.Source, before snapshot.ID) (snapshot.Info, error) {
	r, err := s.Open(ctx, before)
	if rejected := (*snapshot.RejectedError)(nil); errors.As(err, &rejected) {
		return snapshot.Info{Header: snapshot.Header{ID: rejected.ID}}, err
	}
	if err != nil {
		return snapshot.Info{}, err
	}
	_, err = io.Copy(io.Discard, r)
	return r.Info(), errors.Join(err, r.Close())
}

// snapshotRow is a snapshot as the commands show it.
type snapshotRow struct {
	ID      string            `json:"id"`
	Created time.Time         `json:"created,omitzero"`
	Cluster string            `json:"cluster"`
	Kind    string            `json:"kind"`
	Version uint32            `json:"version"`
	Params  map[string]string `json:"params,omitempty"`
	Chunks  int               `json:"chunks"`
	Bytes   int64             `json:"bytes"`
	OK      bool              `json:"ok"`
	Reason  string            `json:"reason,omitempty"`
	Detail  string            `json:"detail,omitempty"`
	TookMS  int64             `json:"took_ms,omitempty"` // of verify
}

func newSnapshotRow(info snapshot.Info, err error) snapshotRow {
	row := snapshotRow{
		ID: info.ID.String(), Created: info.Created, Cluster: info.Cluster, Kind: info.Kind, Version: info.Version,
		Params: info.Params, Chunks: info.Chunks, Bytes: info.Bytes, OK: err == nil,
	}
	var rejected *snapshot.RejectedError
	switch {
	case errors.As(err, &rejected):
		row.Reason, row.Detail = string(rejected.Reason), rejected.Detail
	case err != nil:
		row.Reason, row.Detail = string(snapshot.ReasonOf(err)), err.Error()
	}
	return row
}

// show prints the rows; good is what the table calls those without a fault.
func (f snapshotFlags) show(out io.Writer, rows []snapshotRow, good string) error {
	if f.format == "json" {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		for _, row := range rows {
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tCREATED\tCLUSTER\tKIND\tCHUNKS\tBYTES\tPARAMETERS\tSTATE")
	for _, row := range rows {
		state := good
		if !row.OK {
			state = strings.TrimSuffix(row.Reason+": "+row.Detail, ": ")
		}
		created, kind := "-", "-"
		if !row.Created.IsZero() {
			created, kind = row.Created.UTC().Format(time.RFC3339), fmt.Sprintf("%s/%d", row.Kind, row.Version)
		}
		var params []string
		for _, k := range slices.Sorted(maps.Keys(row.Params)) {
			params = append(params, k+"="+row.Params[k])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", row.ID, created, dash(row.Cluster), kind, row.Chunks, row.Bytes, dash(strings.Join(params, " ")), state)
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
