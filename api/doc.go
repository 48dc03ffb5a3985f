// Package api answers over HTTP which model server already holds the KV cache
// of how much of a prompt.
//
// It joins two things and keeps no state of its own: the block tables of
// package indexer, which say who holds what, and a [Fleet], which says who is
// followed and how well. A [Server] is made with [New]; its Handler is all
// there is, and HTTPServer puts timeouts around it.
//
// # Routes
//
//	POST /v1/query                   who holds how much of a prompt
//	POST /v1/query:batch             up to 256 queries at once
//	POST /v1/explain                 the same, block by block
//	POST /query, /query_by_hash      the public convention (kvcache-ai/Mooncake#1403)
//	POST /lookup                     LMCache's look-up
//	POST /register, /unregister      follow an instance, or no longer
//	GET  /workers                    the instances, as the convention lists them
//	GET  /v1/instances[/{id}]        the instances with their streams
//	POST /v1/instances/{id}/clear    forget what it holds                    (admin)
//	POST /v1/instances/{id}/resync   follow it anew                          (admin)
//	GET  /v1/models, /v1/stats       sums
//	GET  /v1/blocks/{hash}           who holds a block
//	GET  /v1/dump                    every block, a JSON object a line       (admin)
//	GET  /healthz, /readyz, /version, /openapi.json                          (open)
//	GET  /metrics                    Prometheus
//	GET  /debug/pprof/[{profile}]    profiles of the process                 (admin)
//	GET  /                           a page for people
//
// openapi.json describes each of them, and tests hold real responses against
// it. Every GET is readable as text too: Accept: text/plain or ?format=table.
//
// # What an answer means
//
// What kvindex does not know is never an error. An unknown model, an index
// that has seen nothing yet, a prompt that it cannot tokenize: all answer 200
// with zeros and a state that says what the zeros are worth, so that a router
// may always go on. The states are those of [AnswerState], and, for each
// instance, of [State]. A status of 4xx is for what the caller must fix, and
// its body is an [Error]; 5xx is a bug.
//
// A named candidate is always in the answer, under the name that the caller
// used. One that nothing followed is called gets zeros and the state
// "unknown", and makes the whole answer "degraded".
//
// A match counts leading blocks only: what follows a hole counts nothing. Its
// tiers are cumulative: cpu is what is held in gpu or cpu. "tiers" in a query
// therefore cuts off the far end: ["gpu"] counts what is held in the gpu, and
// ["cpu"] is the same as ["gpu","cpu"]. Where a model has blocks of several
// sizes, every instance is answered from its own, the totals are those of the
// best one, and an instance whose block size is another says so.
//
// # Who may ask
//
// Without a token file, everyone who can connect: bind to loopback then. The
// admin routes are for holders of the admin token or, where none is
// configured, for peers on the loopback interface; a reverse proxy on the
// same machine makes all its callers loopback peers, so configure a token
// behind one. Requests that a browser sends from a page of another origin are
// refused.
//
// # What is never shown
//
// Token ids and prompts are user data. They are in no log, error, metric or
// label; the message about a wrong one says where it is, not what it is. The
// tests send marked prompts through every route and look for them everywhere.
//
// # Speed
//
// A query borrows one work from a pool: body, tokens, hashes and response live
// in its buffers, so that a query allocates a handful of small things however
// long its prompt is. Arrays of tokens are parsed in one pass by hand, and base64
// of little-endian 32-bit integers, which is faster still. Chats are looked at
// only as far as to know that they are JSON. Everything else of a body goes
// through encoding/json/jsontext.
package api
