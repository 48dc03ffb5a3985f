package main

import (
	"bytes"
	"encoding/json"

	"github.com/kvindex/kvindex/events"
)

// snapshotHead is what a snapshot tells beside the index.
type snapshotHead struct {
	Instances []events.InstanceState `json:"instances"`
	NATS      *natsMark              `json:"nats,omitempty"` // nil where nothing has been read over NATS
}

// UnmarshalJSON also reads the heads of version 1, which were the list of
// instances alone.
func (h *snapshotHead) UnmarshalJSON(b []byte) error {
	*h = snapshotHead{}
	if bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, &h.Instances)
	}
	type plain snapshotHead // without this method
	return json.Unmarshal(b, (*plain)(h))
}
