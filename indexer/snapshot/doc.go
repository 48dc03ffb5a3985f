// Package snapshot keeps copies of what an index knows where a fresh replica
// finds them whole: in a directory (package filestore), in Redis (redisstore), or
// with another replica (peer). Chain tries several such places in turn, Schedule
// writes to them from time to time.
//
// What a snapshot says is not this package's concern: its body is opaque bytes,
// with a kind and a version. This package sees to it that a body comes back
// whole, or not at all.
//
// # Whole or nothing
//
// A body is read as a stream, so that it never has to be in memory as a whole.
// Reader checks each chunk before it hands out a byte of it, but that nothing is
// missing at the end shows only there. Therefore: build aside what the body
// says, and put it to use after Close has returned nil. Restore and Chain do
// that: they call a decode function, which changes nothing but returns a commit
// function, and call commit only then.
//
// A snapshot that cannot be used is a *RejectedError with a Reason. Nothing of
// it is used, and the one before it is tried.
//
// # Format
//
// All numbers are little-endian, all CRCs are CRC-32C (Castagnoli). As a stream,
// which is what files hold and peers send:
//
//	header
//	for each chunk: u32 bytes, u32 CRC, the bytes
//	trailer
//
// All chunks but the last have 1 MiB; the last has 1 byte to 1 MiB. An empty
// body has none.
//
//	header:  "kvixsnap", u16 format, u32 bytes of the rest without its CRC,
//	         16 bytes id (ULID), i64 created (Unix nanoseconds), cluster,
//	         kind, u32 version of the body,
//	         u16 parameters, each a key and a value, sorted by key;
//	         u32 CRC of all that
//	trailer: u32 0 (in place of a chunk's length), u32 chunks, u64 bytes of the
//	         body, u32 CRC of the body, u32 CRC of each chunk,
//	         u32 bytes of the trailer up to and with this field,
//	         u32 CRC of the header without its CRC and of all this
//
// Strings are a u16 length and bytes. Header and trailer together are the
// manifest. Where chunks can be stored side by side (Redis), the manifest is one
// value and each chunk another. The parameters are what the body depends on, the
// seed of the hashes for one: they are compared before the body is read.
//
// This version of the package writes format 1. A reader accepts its own format
// and the one before.
//
// # Order
//
// Ids sort by time. A store gives each snapshot an id greater than all that it
// holds already, so that "newest" means "begun last" even where clocks differ or
// jump; Created is what the writer's clock said.
package snapshot
