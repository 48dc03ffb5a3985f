package indexer

import (
	"sync/atomic"
	"unsafe"
)

// A bucket is one cache line: eight ids, each with 32 bits of its hash.
const (
	segmentBits = 10
	bucketSize  = 8
	bucketBytes = int64(unsafe.Sizeof(bucket{}))

	// fullAt is how many percent of a segment's room may be taken.
	fullAt = 80

	// overflow, in the last id of a bucket, says that some hash of it is in a
	// later bucket. Removals leave it: it says "look further", not "it is there".
	overflow = 1 << 31
)

type bucket struct {
	tags [bucketSize]uint32 // 0: free
	ids  [bucketSize]uint32
}

// segment is a part of the hashes. Only its buckets change, never itself:
// where it must grow, another takes its place.
type segment struct {
	b     []bucket
	count int // the writer's: ids, and
	marks int // buckets marked with overflow
}

// buckets maps hashes to ids, in 1,024 segments by the top bits that grow one by
// one. It is a multimap, and does not know the keys: whoever looks up compares
// the key that belongs to the id.
//
// One writer at a time; any number of readers call probe and next. An id is
// stored before its tag, and never moves inside a segment, so that what is there
// all the time is found all the time.
type buckets struct {
	segments [1 << segmentBits]atomic.Pointer[segment]
	mem      *meter
}

// mix spreads the bits of a hash, which may be a counter in disguise.
func mix(h uint64) uint64 {
	h *= 0x9E3779B97F4A7C15
	return h ^ h>>32
}

// tagOf is what a bucket keeps of a mixed hash: not the bits that chose the
// segment, but those that choose the bucket, so that a segment grows without a
// look at the keys.
func tagOf(h uint64) uint32 {
	if tag := uint32(h >> (64 - segmentBits - 32)); tag != 0 {
		return tag
	}
	return 1
}

func (s *segment) home(tag uint32) int { return int(uint64(tag) * uint64(len(s.b)) >> 32) }

// probe is a walk over the ids whose hash may be the one asked for.
type probe struct {
	s    *segment
	tag  uint32
	b    int // bucket
	left int // buckets not yet begun
	j    int // in the bucket
}

func (x *buckets) probe(hash uint64) probe {
	h := mix(hash)
	s := x.segments[h>>(64-segmentBits)].Load()
	if s == nil {
		return probe{}
	}
	tag := tagOf(h)
	return probe{s: s, tag: tag, b: s.home(tag), left: len(s.b) - 1}
}

// next returns the next id; 0 if there is none. A probe is over after all
// buckets of the segment, whatever the marks say.
func (p *probe) next() uint32 {
	if p.s == nil {
		return 0
	}
	for {
		b := &p.s.b[p.b]
		for p.j < bucketSize {
			j := p.j
			p.j++
			if atomic.LoadUint32(&b.tags[j]) == p.tag {
				return atomic.LoadUint32(&b.ids[j]) &^ overflow
			}
		}
		if p.left == 0 || atomic.LoadUint32(&b.ids[bucketSize-1])&overflow == 0 {
			return 0
		}
		p.left--
		p.j = 0
		if p.b++; p.b == len(p.s.b) {
			p.b = 0
		}
	}
}

// touch has the bucket of a hash on its way from memory. What several touches
// fetch comes at once; look-ups one after another would wait for each.
func (x *buckets) touch(hash uint64) {
	h := mix(hash)
	if s := x.segments[h>>(64-segmentBits)].Load(); s != nil {
		atomic.LoadUint32(&s.b[s.home(tagOf(h))].tags[0])
	}
}

// room makes room for one more id. It is false if there is no memory for it.
func (x *buckets) room(hash uint64) bool {
	at := &x.segments[mix(hash)>>(64-segmentBits)]
	s := at.Load()
	if s == nil {
		if !x.mem.try(bucketBytes) {
			return false
		}
		at.Store(&segment{b: make([]bucket, 1)})
		return true
	}
	n := len(s.b)
	switch {
	case (s.count+1)*100 > n*bucketSize*fullAt && s.count >= bucketSize-1:
		more := n/3 + 1
		if !x.mem.try(int64(more) * bucketBytes) {
			return s.count+1 < n*bucketSize*95/100
		}
		at.Store(s.rebuilt(n + more))
	case n > 8 && s.marks*100 > n*45:
		// Marks piled up, by churn: a look-up in vain would go on and on.
		at.Store(s.rebuilt(n))
	}
	return true
}

// reservedAt is how many percent of the room that reserve makes are to be taken:
// segments get more ids than others, by chance.
const reservedAt = 70

// regionBytes is how much memory reserve makes at once: much of it is then in huge
// pages.
const regionBytes = 16 << 20

// reserve makes room for n ids in all, in buckets that are empty, as far as there
// is memory: growing to it step by step would move each id about three times.
func (x *buckets) reserve(n int) {
	each := n * 100 / (bucketSize * reservedAt) >> segmentBits
	if each <= 1 {
		return
	}
	var region []bucket
	for i := range x.segments {
		if x.segments[i].Load() != nil || !x.mem.try(int64(each)*bucketBytes) {
			return
		}
		if len(region) < each {
			region = make([]bucket, each*max(1, min(len(x.segments)-i, regionBytes/int(bucketBytes)/each)))
			inHugePages(unsafe.Pointer(&region[0]), uintptr(len(region))*unsafe.Sizeof(bucket{}))
		}
		x.segments[i].Store(&segment{b: region[:each:each]})
		region = region[each:]
	}
}

func (s *segment) rebuilt(n int) *segment {
	to := &segment{b: make([]bucket, n)}
	for i := range s.b {
		b := &s.b[i]
		for j, tag := range &b.tags {
			if tag != 0 {
				to.put(tag, b.ids[j]&^overflow)
			}
		}
	}
	return to
}

// put stores an id that room was made for.
func (x *buckets) put(hash uint64, id uint32) {
	h := mix(hash)
	x.segments[h>>(64-segmentBits)].Load().put(tagOf(h), id)
}

func (s *segment) put(tag, id uint32) {
	s.count++
	for i := s.home(tag); ; {
		b := &s.b[i]
		for j, t := range &b.tags {
			if t == 0 {
				atomic.StoreUint32(&b.ids[j], b.ids[j]&overflow|id)
				atomic.StoreUint32(&b.tags[j], tag)
				return
			}
		}
		if last := b.ids[bucketSize-1]; last&overflow == 0 {
			atomic.StoreUint32(&b.ids[bucketSize-1], last|overflow)
			s.marks++
		}
		if i++; i == len(s.b) {
			i = 0
		}
	}
}

// replace puts another id, or none if that is 0, in place of one that is there.
func (x *buckets) replace(hash uint64, id, by uint32) {
	p := x.probe(hash)
	for got := p.next(); got != 0; got = p.next() {
		if got != id {
			continue
		}
		b := &p.s.b[p.b]
		j := p.j - 1
		if by != 0 {
			atomic.StoreUint32(&b.ids[j], b.ids[j]&overflow|by)
		} else {
			atomic.StoreUint32(&b.tags[j], 0)
			p.s.count--
		}
		return
	}
}

// bytes counts the memory of the buckets.
func (x *buckets) bytes() int64 {
	n := int64(0)
	for i := range x.segments {
		if s := x.segments[i].Load(); s != nil {
			n += int64(len(s.b)) * bucketBytes
		}
	}
	return n
}
