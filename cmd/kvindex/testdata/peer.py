#!/usr/bin/env python3
"""A model server as far as its KV-cache events go, for the end-to-end tests of kvindex.

It speaks what vLLM's ZmqEventPublisher speaks, written from that protocol and on Python's binding of libzmq: it shares
no code, no library and no language with kvindex. It needs pyzmq and nothing else; messages are encoded by hand.

It also keeps the books of the prefix cache that it announces, so that tests can ask it for the truth.

A prompt is a list of [id, blocks]: so many blocks of tokens that follow from the id, then those of the next id. Two
prompts share the prefix that their lists share. Token j of id i is (100003 * i + 31 * j) % 151936, so that a test can
make the same ids.

Commands are lines of JSON on stdin, answered one by one, in order, by a line of JSON on stdout: "seq" (of the next
batch), "blocks" (distinct ones in the cache), and what the command adds, or "error". The process ends with its stdin.

  {"do": "bind"}                   opens the sockets; what is published before is heard by nobody, but replayed
  {"do": "connect"}                what vLLM does about an endpoint without a wildcard: nobody can dial it
  {"do": "publish", "events": [EVENT...], "lost": ""}
                                   one batch. "live": nobody hears it, a replay brings it. "all": its number is used
                                   up and nobody ever sees it, as when the engine fails to encode it
  {"do": "raw", "payload": HEX}    a batch of these bytes, numbered and replayed like any other
  {"do": "send", "frames": [HEX...]}       a message of these frames as they are
  {"do": "fill", "batches": N}     N batches of one store each, one after the other
  {"do": "chatter", "every": S}    a batch every S seconds, beside the commands, until S is 0; "published": how many
  {"do": "match", "prompts": [PROMPT...]}  "matched": the leading blocks of each that are in the cache
  {"do": "subscribers"}            "subscribers": how many have come so far less those that left (with --xpub)

EVENT is {"kind": "store" or "remove", "prompt": PROMPT, "from": B, "blocks": N} or {"kind": "clear"}.
"""

import argparse
import collections
import errno
import hashlib
import json
import os
import select
import struct
import sys
import time

import zmq

END_SEQ = b"\xff" * 8
TICK = 0.1  # s; vLLM's publisher thread looks for replay requests between two waits of this length


# The encodings.


def msgpack(v):
    """Encodes the types that events are made of, each in its shortest form, as msgspec does."""
    if v is None:
        return b"\xc0"
    if isinstance(v, int):
        if v < 0:
            raise ValueError(f"{v}: no event has negative numbers")
        if v < 1 << 7:
            return bytes([v])
        for tag, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
            if v < 1 << 8 * size:
                return bytes([tag]) + v.to_bytes(size, "big")
        raise ValueError(f"{v} has more than 64 bits")
    if isinstance(v, float):
        return b"\xcb" + struct.pack(">d", v)
    if isinstance(v, str):
        b = v.encode()
        if len(b) < 32:
            return bytes([0xA0 | len(b)]) + b
        return b"\xd9" + bytes([len(b)]) + b  # fails from 256 bytes on: no name is that long
    if isinstance(v, list):
        return length(0x90, 0xDC, len(v)) + b"".join(map(msgpack, v))
    if isinstance(v, dict):
        return length(0x80, 0xDE, len(v)) + b"".join(msgpack(x) for item in v.items() for x in item)
    raise TypeError(f"no event has a {type(v)}")


def length(fix, tag16, n):
    """The head of an array or map of n elements."""
    if n < 16:
        return bytes([fix | n])
    return bytes([tag16]) + n.to_bytes(2, "big")


def cbor(v):
    """Encodes what block hashes are made of, in canonical CBOR: the input of vLLM's sha256_cbor."""

    def head(major, n):
        if n < 24:
            return bytes([major << 5 | n])
        for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
            if n < 1 << 8 * size:
                return bytes([major << 5 | info]) + n.to_bytes(size, "big")
        raise ValueError(n)

    if v is None:
        return b"\xf6"
    if isinstance(v, int):
        return head(0, v)
    if isinstance(v, bytes):
        return head(2, len(v)) + v
    if isinstance(v, str):
        return head(3, len(v.encode())) + v.encode()
    return head(4, len(v)) + b"".join(map(cbor, v))


NONE_HASH = hashlib.sha256(cbor("vllm-none-hash")).digest()  # shared by all engines, and by their successors


def tokens_of(prompt, block_size):
    return [(100003 * i + 31 * j) % 151936 for i, blocks in prompt for j in range(blocks * block_size)]


class Cache:
    """The prefix cache of the engine: how many copies of which block it holds."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.copies = collections.Counter()

    def chain(self, prompt):
        """The tokens and the hash of every block of a prompt."""
        tokens, parent, chain = tokens_of(prompt, self.block_size), NONE_HASH, []
        for at in range(0, len(tokens), self.block_size):
            block = tokens[at : at + self.block_size]
            parent = hashlib.sha256(cbor((parent, block, None))).digest()
            chain.append((block, int.from_bytes(parent[-8:], "big")))
        return chain

    def match(self, prompt):
        n = 0
        for _, h in self.chain(prompt):
            if not self.copies[h]:
                break
            n += 1
        return n

    def store(self, hashes):
        self.copies.update(hashes)

    def remove(self, h):
        if not self.copies[h]:
            raise ValueError("a test removes a block that is not there")
        self.copies[h] -= 1
        if not self.copies[h]:
            del self.copies[h]

    def clear(self):
        self.copies.clear()


# Events on the wire: maps of vLLM 0.24 and later, arrays of 0.23.


def stored_map(hashes, parent, tokens, block_size):
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": block_size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def stored_array(hashes, parent, tokens, block_size):
    extra_keys = [None] * len(hashes)
    return ["BlockStored", hashes, parent, tokens, block_size, None, "GPU", None, extra_keys, 0, "full_attention", None]


def removed_map(h):
    return {"type": "BlockRemoved", "block_hashes": [h], "medium": "GPU", "group_idx": 0}


def removed_array(h):
    return ["BlockRemoved", [h], "GPU", 0]


class Engine:
    def __init__(self, options):
        self.o = options
        self.cache = Cache(options.block_size)
        self.maps = options.events == "map"
        self.seq = 0
        self.buffer = collections.deque(maxlen=options.buffer)
        self.pub = self.router = None
        self.subscribers = 0
        self.every, self.chatted, self.due = 0, 0, 0
        self.context = zmq.Context()

    # What the engine does to its cache, one event each.

    def event(self, kind, prompt=(), start=0, blocks=0):
        """Changes the cache and yields the events that say so."""
        if kind == "clear":
            self.cache.clear()
            yield {"type": "AllBlocksCleared"} if self.maps else ["AllBlocksCleared"]
            return
        chain = self.cache.chain(prompt)
        run = chain[start : start + blocks]
        if len(run) != blocks or not blocks:
            raise ValueError(f"{prompt} has no blocks {start} to {start + blocks}")
        if kind == "store":
            hashes = [h for _, h in run]
            self.cache.store(hashes)
            parent = chain[start - 1][1] if start else None
            tokens = [t for block, _ in run for t in block]
            yield (stored_map if self.maps else stored_array)(hashes, parent, tokens, self.o.block_size)
        elif kind == "remove":  # one event a block, the last one first
            for _, h in reversed(run):
                self.cache.remove(h)
                yield (removed_map if self.maps else removed_array)(h)
        else:
            raise ValueError(f"unknown event {kind}")

    def batch(self, events):
        wire = [w for e in events for w in self.event(e["kind"], e.get("prompt", ()), e.get("from", 0), e.get("blocks", 0))]
        return msgpack([time.time(), wire, self.o.rank])

    # The publisher.

    def bind(self):
        """Opens the sockets at 127.0.0.1; a process that was killed a moment ago may not have let go of them yet."""
        self.pub = self.context.socket(zmq.XPUB if self.o.xpub else zmq.PUB)
        self.pub.set_hwm(100_000)
        self.pub.linger = 0
        bind_patiently(self.pub, self.o.endpoint)
        if self.o.replay:
            self.router = self.context.socket(zmq.ROUTER)
            self.router.linger = 0
            bind_patiently(self.router, self.o.replay)

    def connect(self):
        self.pub = self.context.socket(zmq.PUB)
        self.pub.linger = 0
        self.pub.connect(self.o.endpoint)

    def publish(self, payload, lost=""):
        seq, self.seq = self.seq, self.seq + 1
        if lost == "all":
            return
        if not lost:
            self.send([self.o.topic.encode(), seq.to_bytes(8, "big"), payload])
        self.buffer.append((seq, payload))

    def send(self, frames):
        if self.pub is not None:
            self.pub.send_multipart(frames)

    def serve_replay(self):
        """Answers one replay request, if there is one."""
        if self.router is None or not self.router.poll(0):
            return
        request = self.router.recv_multipart()
        if len(request) != 3:  # as vLLM does: not answered
            print(f"invalid replay request of {len(request)} frames", file=sys.stderr, flush=True)
            return
        client, delimiter, start = request
        start = int.from_bytes(start, "big")
        topic = [self.o.topic.encode()] if self.o.layout == "topic" else []
        for seq, payload in self.buffer:
            if seq >= start:
                self.router.send_multipart([client, delimiter, *topic, seq.to_bytes(8, "big"), payload])
        end = [b""] if self.o.layout == "topic" else []
        self.router.send_multipart([client, delimiter, *end, END_SEQ, b""])

    def chatter(self):
        """Publishes what is due of the batches that go on by themselves; the cache stays small."""
        while self.every and time.monotonic() >= self.due:
            self.due = max(self.due + self.every, time.monotonic() - 1)  # what is much too late is left out
            n, self.chatted = self.chatted, self.chatted + 1
            events = [{"kind": "store", "prompt": [[1000 + n, 2]], "blocks": 2}]
            if n >= 50:
                events.insert(0, {"kind": "remove", "prompt": [[1000 + n - 50, 2]], "blocks": 2})
            self.publish(self.batch(events))

    def wait(self):
        """How long there is nothing to do but to wait for commands, in seconds."""
        if not self.every:
            return TICK
        return min(TICK, max(0, self.due - time.monotonic()))

    # The commands.

    def do(self, c):
        """Carries a command out and returns what its answer has to add."""
        what = c["do"]
        if what == "bind":
            self.bind()
            return {
                "endpoint": self.pub.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"),
                "replay": self.router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0") if self.router else "",
            }
        if what == "connect":
            self.connect()
        elif what == "publish":
            self.publish(self.batch(c["events"]), c.get("lost", ""))
        elif what == "raw":
            self.publish(bytes.fromhex(c["payload"]))
        elif what == "send":
            self.send([bytes.fromhex(f) for f in c["frames"]])
        elif what == "fill":
            for n in range(c["batches"]):
                self.publish(self.batch([{"kind": "store", "prompt": [[500_000 + n, 1]], "blocks": 1}]))
        elif what == "chatter":
            self.every, self.due = c["every"], time.monotonic()
            return {"published": self.chatted}
        elif what == "match":
            return {"matched": [self.cache.match(p) for p in c["prompts"]]}
        elif what == "subscribers":
            while self.pub.poll(0):
                self.subscribers += 1 if self.pub.recv()[0] else -1
            return {"subscribers": self.subscribers}
        else:
            raise ValueError(f"unknown command {what}")
        return {}

    def answer(self, line):
        try:
            more = self.do(json.loads(line))
        except Exception as e:  # a mistake of the test's: it is told, and fails
            more = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps({"seq": self.seq, "blocks": len(self.cache.copies), **more}), flush=True)


def bind_patiently(socket, endpoint):
    end = time.monotonic() + 5
    while True:
        try:
            socket.bind(endpoint)
            return
        except zmq.ZMQError as e:
            if e.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description="publishes KV-cache events as vLLM does; commands on stdin")
    parser.add_argument("endpoint", help="of the publisher; tcp://127.0.0.1:* chooses a port")
    parser.add_argument("--replay", default="", help="endpoint of the replay socket; default none")
    parser.add_argument("--events", choices=["map", "array"], default="map", help="of vLLM 0.24 and later, or of 0.23")
    parser.add_argument("--layout", choices=["topic", "plain"], default="topic", help="replies of a replay have 4 frames, or 3")
    parser.add_argument("--buffer", type=int, default=10_000, help="batches that a replay reaches back")
    parser.add_argument("--topic", default="kv@peer@tiny")
    parser.add_argument("--rank", type=int, default=0, help="data-parallel rank")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--xpub", action="store_true", help="XPUB for PUB: the same on the wire, but it knows when a subscription has arrived")
    engine = Engine(parser.parse_args())
    # One thread does everything, as in vLLM: a replay waits for the batch before it, and the other way round.
    stdin, text = sys.stdin.fileno(), b""
    while True:
        engine.serve_replay()
        engine.chatter()
        line, found, rest = text.partition(b"\n")
        if found:
            text = rest
            engine.answer(line)
        elif select.select([stdin], [], [], engine.wait())[0]:
            more = os.read(stdin, 1 << 16)
            if not more:
                os._exit(0)  # whatever the sockets still hold
            text += more


if __name__ == "__main__":
    main()
