// Package hub brings a model's tokenizer files: from a directory, from the
// cache that huggingface_hub and with it every engine uses, or from a Hugging
// Face hub, whose files it adds to that cache.
//
// # The cache
//
// Its layout is huggingface_hub's, read and written: what `hf download` has put
// there is used as it is, and what this package puts there huggingface_hub
// finds.
//
//	models--Org--Name/blobs/<etag>                 a file's content, named after its checksum
//	models--Org--Name/snapshots/<commit>/<file>    a symlink to a blob (a copy where there are no symlinks)
//	models--Org--Name/refs/<revision>              the commit that a branch or tag was when last asked
//	models--Org--Name/.no_exist/<commit>/<file>    empty: the commit has no such file
//	models--Org--Name/trees/<commit>.json          huggingface_hub's list of a commit's files; only read
//	.locks/models--Org--Name/<etag>.lock           flock: one process downloads a blob, the others wait
//
// (huggingface_hub 2.4: file_download.py, _tree_cache.py.)
//
// # What callers may rely on
//
//   - All files of a Snapshot are of one commit, and only whole files are ever
//     visible: a file is written under another name, checked against its ETag
//     (the SHA-256 of large files, git's SHA-1 of small ones) and renamed. The
//     required file comes last, so that a snapshot that has it has been
//     completed; the reference moves after that.
//   - The locks only save work. Where they do not hold (some network file
//     systems) two processes download the same twice, into files of their own.
//   - A download that broke leaves <etag>.incomplete, from which the next one
//     goes on.
//   - A commit that is in the cache is used without a request. For a branch or
//     tag the hub is asked what it is now, by one request if nothing has
//     changed. If it does not answer, or refuses, or the cache cannot be written
//     to, what the cache has is used, and Snapshot.Origin says why.
//   - Whether the commit has a file that the cache lacks is known from the last
//     two kinds of entries above, else the hub is asked. Where it cannot be,
//     Snapshot.Unchecked names the file.
//   - The token goes to the endpoint only (same scheme, host and port), never
//     along a redirect to another, and is in no error and no log. Neither are
//     the signed URLs that the hub redirects to. A redirect from https to http
//     is refused.
package hub
