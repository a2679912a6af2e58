"""Every byte: field types, long bodies, small and large frames, heartbeats."""

import hashlib
import random
import struct
import time

import pytest

from lab import DEADLINE, until
from raw import GET, GET_EMPTY, GET_OK, HEARTBEAT, PROTOCOL_HEADER, REJECT, START, TUNE, Frame, Raw, Reader, method, publish, short, start_ok

FIELDS = [
    ("t", b"t", True), ("b", b"b", -128), ("B", b"B", 255), ("s", b"s", -32768), ("u", b"u", 65535), ("I", b"I", -(2**31)), ("i", b"i", 2**32 - 1),
    ("l", b"l", -(2**63)), ("L", b"L", 2**63 - 1), ("f", b"f", 0.5), ("d", b"d", -1e300), ("D", b"D", (3, -12345)), ("S", b"S", "zwölf".encode()),
    ("x", b"x", bytes(range(256))), ("T", b"T", 2**40), ("V", b"V", None), ("empty", b"S", b""), ("", b"S", b"no name"),
    ("A", b"A", [(b"I", 1), (b"A", []), (b"F", [(b"in", b"A", [(b"u", 7)])]), (b"V", None)]),
    ("F", b"F", [(b"deep", b"F", [(b"deeper", b"d", 2.5), (b"none", b"F", [])])]), (b"\xff\xfe", b"S", b"not UTF-8: \xff"),
]
"""A header of every type in RabbitMQ's dialect of AMQP, and some odd ones."""


def as_types(fields):
    """As a map that keeps the types; L is l after a death (4.6)."""
    plain = {b"L": b"l"}
    return {name if isinstance(name, bytes) else name.encode(): (plain.get(tag, tag), content) for name, tag, content in fields}


def raw_get(raw, queue):
    """(delivery tag, headers as fields, body) of the next message of the queue."""

    def ask():
        raw.send(method(1, GET, b"\0\0" + short(queue) + b"\0"))
        answer = raw.frame()
        assert answer.id in (GET_OK, GET_EMPTY), answer
        return answer if answer.id == GET_OK else None

    tag = until(ask, f"a message in {queue}").arguments.number(">Q")
    header, body = raw.frame(), b""
    size, flags = struct.unpack(">QH", header.payload[4:14])
    assert flags == 0x2000, "headers is the only property"
    fields = Reader(header.payload[14:]).table()
    while len(body) < size:
        body += raw.frame().payload
    return tag, fields, body


@pytest.mark.parametrize("reason", ["rejected", "expired"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_every_type_of_header_is_kept(scene, reason, kind):
    sink, source = scene.queue("sink"), scene.name("source")
    scene.source("source", reason, kind=kind, dlx="", dlk=sink)
    with Raw(scene.via) as raw:
        raw.open_channel()
        raw.send(*publish(1, "", source, b"body", FIELDS))
        if reason == "rejected":
            raw.send(method(1, REJECT, struct.pack(">Q", raw_get(raw, source)[0]) + b"\0"))
        _, fields, body = raw_get(raw, sink)
    assert body == b"body"
    kept = {name: typed for name, typed in as_types(fields).items() if b"-death" not in name}
    assert kept == as_types(FIELDS)
    (death,) = dict((name, content) for name, _, content in fields)[b"x-death"]
    assert {name: tag for name, tag, _ in death[1]} == {
        b"count": b"l", b"reason": b"S", b"queue": b"S", b"time": b"T", b"exchange": b"S", b"routing-keys": b"A"}


def dies_whole(scene, kind, body, **options):
    """Publish `body` on a connection of its own, reject it, and compare what arrives."""
    connection = scene.via.connect(**options)
    channel = connection.channel()
    sink = scene.queue("sink", channel=channel)
    source = scene.queue("source", channel=channel, kind=kind, dlx="", dlk=sink)
    channel.confirm_delivery()
    scene.publish("", source, body, channel=channel)
    got = scene.get(source, channel)
    assert hashlib.sha256(got[2]).digest() == hashlib.sha256(body).digest()
    channel.basic_reject(got[0].delivery_tag, requeue=False)
    dead = scene.get(sink, channel)
    assert hashlib.sha256(dead[2]).digest() == hashlib.sha256(body).digest()
    assert dead[1].headers["x-death"][0]["reason"] == "rejected"
    channel.basic_ack(dead[0].delivery_tag)
    connection.close()


@pytest.mark.parametrize("frame_max", [8192, 131072])
def test_frame_max(scene, frame_max):
    """Bodies around the size of one frame, and of many."""
    body = random.Random(7).randbytes(300_000)
    for size in (frame_max - 9, frame_max - 8, frame_max - 7, len(body)):
        dies_whole(scene, "classic", body[:size], frame_max=frame_max)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_16_mib(scene, kind):
    dies_whole(scene, kind, random.Random(16).randbytes(16 * 2**20))


@pytest.mark.parametrize("frame_max", [8192, 131072])
def test_a_header_as_large_as_a_frame(scene, frame_max):
    """The message is accepted; with its history it fits no frame of this size any more. It must not be lost (8.4)."""
    sink = scene.queue("sink")
    source = scene.queue("source", dlx="", dlk=sink)
    connection = scene.via.connect(frame_max=frame_max)
    filler = frame_max - 8 - 14 - 4 - 5 - len("filler") - 1
    channel = connection.channel()
    sent = scene.publish("", source, channel=channel, headers={"filler": "f" * (filler - 200)})
    channel.basic_reject(scene.get(source, channel)[0].delivery_tag, requeue=False)
    where = until(lambda: scene.via.parked(sent.id) or (scene.depth(sink) and [scene.get(sink)]), f"{sent.id} anywhere")
    assert where[0][2] == sent.body and where[0][1].headers["filler"] == sent.properties.headers["filler"]
    connection.close()


@pytest.mark.once
def test_heartbeats_of_an_idle_client(scene):
    """heartbeat 1 s, nothing else for 10 s and 10 heartbeats of the broker: both sides stay alive."""
    with Raw(scene.via, heartbeat=1) as raw:
        raw.socket.settimeout(0.4)
        heard, since = 0, time.monotonic()
        while heard < 10 or time.monotonic() < since + 10:
            assert time.monotonic() < since + DEADLINE, f"only {heard} heartbeats"
            raw.send(Frame(HEARTBEAT, 0, b""))
            try:
                frame = raw.frame()
            except TimeoutError:
                continue
            assert frame is not None and frame.kind == HEARTBEAT
            heard += 1
        raw.socket.settimeout(DEADLINE)
        raw.open_channel()


@pytest.mark.once
def test_a_client_without_heartbeats_is_left(scene):
    """The broker closes a connection whose client is silent for two intervals; so it looks through the proxy."""
    with Raw(scene.via, heartbeat=1) as raw:
        since = time.monotonic()
        while (frame := raw.frame()) is not None:
            assert frame.kind == HEARTBEAT and time.monotonic() < since + DEADLINE, "it is kept"
        assert time.monotonic() > since + 1


def test_tune_is_the_broker_s(scene):
    """Channel and frame bounds, heartbeat: byte for byte."""
    offers = []
    for direct in (True, False):
        with Raw(scene.via, direct=direct, greet=False) as raw:
            raw.write(PROTOCOL_HEADER)
            start = raw.expect(START)
            login = scene.via.broker.parameters.credentials
            raw.send(start_ok(login.username, login.password))
            offers.append((start, raw.expect(TUNE)))
    assert offers[0] == offers[1]
