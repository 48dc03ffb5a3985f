package events

import "fmt"

// BatchReason names why a whole batch was rejected; the values are metric
// labels.
type BatchReason string

// Reasons to reject a batch. Only what makes the extent of its parts or the
// identity of the stream uncertain rejects a batch; anything else costs one
// event (see SkipReason).
const (
	BatchTruncated BatchReason = "truncated"   // the payload ends inside a value, or a length exceeds it
	BatchTrailing  BatchReason = "trailing"    // bytes follow the batch
	BatchNotABatch BatchReason = "not_a_batch" // neither an array of at least 2 nor a map
	BatchBadTS     BatchReason = "bad_ts"      // timestamp missing, given twice or no number
	BatchBadEvents BatchReason = "bad_events"  // events missing, given twice or no array
	BatchBadRank   BatchReason = "bad_rank"    // rank given twice, no integer or out of range
	BatchTooLarge  BatchReason = "too_large"   // beyond Limits.MaxPayload or MaxEvents
	BatchTooDeep   BatchReason = "too_deep"    // beyond Limits.MaxDepth
	BatchReserved  BatchReason = "reserved"    // holds the byte 0xc1 where a value begins
)

// BatchError says why a batch was rejected and where. It holds types, lengths
// and offsets only, never contents: prompts are the users' data.
type BatchError struct {
	Reason BatchReason
	Offset int    // of the offending byte or value in the payload
	Size   int    // of the payload, bytes
	Detail string // one clause for people
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("cannot decode batch: %s at byte %d of %d: %s", e.Reason, e.Offset, e.Size, e.Detail)
}
