package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/enginesim"
	"github.com/kvindex/kvindex/indexer"
	"github.com/kvindex/kvindex/indexer/snapshot"
)

const (
	numPods   = 64
	blockSize = 16
	docBlocks = 100
	model     = "m"
)

// content is a fleet of pods and the index of what they hold: what a snapshot is
// made of.
type content struct {
	index *indexer.Index
	fleet *events.Fleet
	docs  [][]uint32 // some that are held, to ask for
	pairs int        // of a block and a pod
	seqs  [numPods]uint64
	size  int // of the last copy
	pace  snapshot.Pace
}

// newContent follows pods that tell of so many blocks: documents of 100 blocks,
// each on 1 to 5 pods, of which the later ones hold less of it.
func newContent(blocks int) (*content, error) {
	x, err := indexer.New(indexer.Options{})
	if err != nil {
		return nil, err
	}
	c := &content{index: x}
	var mu sync.Mutex
	sessions := map[string]*events.Session{}
	c.fleet = events.NewFleet(events.FleetOptions{Index: x, Source: func(ctx context.Context, s *events.Session) error {
		s.Connected()
		mu.Lock()
		sessions[s.Stream().Endpoint] = s
		mu.Unlock()
		<-ctx.Done()
		return nil
	}})
	for pod := range numPods {
		if _, err := c.fleet.Add(events.InstanceSpec{
			ID: podName(pod), Model: model, Streams: []events.StreamSpec{{Endpoint: endpoint(pod)}},
		}); err != nil {
			return nil, err
		}
	}
	var pods [numPods]*events.Session
	for ready := 0; ready < numPods; time.Sleep(time.Millisecond) {
		mu.Lock()
		ready = len(sessions)
		for pod := range numPods {
			pods[pod] = sessions[endpoint(pod)]
		}
		mu.Unlock()
	}
	c.fill(blocks, pods)
	for _, in := range c.fleet.Instances() {
		if h := in.Health(); h.State != events.Live {
			return nil, fmt.Errorf("cannot fill the index: %s is %v: %s", in.Spec().ID, h.State, h.Reason)
		}
	}
	return c, nil
}

func podName(pod int) string  { return fmt.Sprint("pod-", pod) }
func endpoint(pod int) string { return fmt.Sprintf("tcp://10.0.0.%d:5557", pod) }

func (c *content) fill(blocks int, pods [numPods]*events.Session) {
	rng := rand.New(rand.NewPCG(1, 2))
	every := max(1, blocks/docBlocks/2000)
	for i := range blocks / docBlocks {
		tokens := make([]uint32, docBlocks*blockSize)
		for j := range tokens {
			tokens[j] = rng.Uint32N(150_000)
		}
		hashes := make([]enginesim.Hash, docBlocks)
		for j := range hashes {
			hashes[j] = enginesim.UintHash(rng.Uint64())
		}
		for j := range 1 + i%5 {
			pod, n := (i+7*j)%numPods, docBlocks-10*j
			payload := enginesim.DefaultEncoding.AppendBatch(nil, enginesim.Batch{Time: 1, Events: []enginesim.Event{{
				Kind: enginesim.Stored, Hashes: hashes[:n], Tokens: tokens[:n*blockSize], BlockSize: blockSize,
				Medium: enginesim.MediumGPU, Group: enginesim.NoGroup,
			}}})
			pods[pod].Live([][]byte{nil, binary.BigEndian.AppendUint64(nil, c.seqs[pod]), payload})
			c.seqs[pod]++
			c.pairs += n
		}
		if i%every == 0 {
			c.docs = append(c.docs, tokens)
		}
	}
}

func (c *content) close() {
	c.fleet.Close()
	c.index.Close()
}

// tableOf returns where the blocks are.
func tableOf(x *indexer.Index) *indexer.Table {
	return x.Table(indexer.TableKey{Model: model, BlockSize: blockSize})
}

// Meta describes a snapshot.
func (c *content) Meta() snapshot.Meta {
	return snapshot.Meta{Cluster: "bench", Kind: "bench", Version: 1}
}

// WriteBody writes what kvindex's snapshots hold, as kvindex writes them: see
// cmd/kvindex.
func (c *content) WriteBody(w io.Writer) error {
	room, release := snapshot.Room(c.room())
	defer release()
	head, body, _, err := c.freeze(room)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...)); err != nil {
		return err
	}
	return c.pace.Write(w, body)
}

func (c *content) room() int { return max(c.size+c.size/8, 20*tableOf(c.index).Stats().UniqueBlocks) }

// freeze copies everything to where there is room, and says how long streams
// stood still.
func (c *content) freeze(room []byte) (head, body []byte, stood time.Duration, err error) {
	begin := time.Now()
	c.fleet.Freeze(func(states []events.InstanceState) {
		head, err = json.Marshal(states)
		body = c.index.AppendSnapshot(room)
	})
	c.size = len(body)
	return head, body, time.Since(begin), err
}

// restored is an index that was read.
type restored struct {
	index        *indexer.Index
	load, decode time.Duration // from the store, and into the index
}

// decodeInto returns a function that reads a body into a new index.
func (r *restored) decodeInto(_ snapshot.Header, body io.Reader) (func(), error) {
	begin := time.Now()
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	r.load = time.Since(begin)
	begin = time.Now()
	if len(b) < 4 {
		return nil, errors.New("the body is too short")
	}
	n := binary.LittleEndian.Uint32(b)
	var states []events.InstanceState
	if err := json.Unmarshal(b[4:4+n], &states); err != nil {
		return nil, err
	}
	read, err := r.index.ReadSnapshot(b[4+n:])
	if err != nil {
		return nil, err
	}
	r.decode = time.Since(begin)
	return read.Use, nil
}

// sameAnswers compares the answers of two indexes to the documents.
func (c *content) sameAnswers(x *indexer.Index) error {
	var a, b indexer.Result
	for _, tokens := range c.docs {
		tableOf(c.index).MatchTokens(tokens, 0, 0, &a)
		tableOf(x).MatchTokens(tokens, 0, 0, &b)
		held := map[indexer.StreamID]int{}
		for _, s := range a.Streams {
			held[s.Stream] = s.Blocks[indexer.GPU]
		}
		for _, s := range b.Streams {
			if held[s.Stream] != s.Blocks[indexer.GPU] || len(a.Streams) != len(b.Streams) {
				return fmt.Errorf("what was restored answers differently: %v holds %d blocks, not %d", s.Stream, s.Blocks[indexer.GPU], held[s.Stream])
			}
		}
		if len(a.Streams) == 0 || len(b.Streams) != len(a.Streams) {
			return fmt.Errorf("what was restored answers differently: %d streams, not %d", len(b.Streams), len(a.Streams))
		}
	}
	return nil
}
