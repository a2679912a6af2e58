"""Messages that are hard to read, to store or to publish: through both paths each arrives as it was, or is parked, and its neighbours do not notice."""

import struct
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from lab import until
from own import PARKED, PREFIX, own  # noqa: F401
from raw import (
    BODY, DECLARE_OK, GET, GET_EMPTY, GET_OK, HEADER, PUBLISH, REJECT, Frame, Raw, Reader, declare, long, method, short, table,
)

FRAME_MAX = 131072
HEADERS, SHORT_STRINGS = 0x2000, 0xC6AC
"""Property flags: `headers`; and all short strings but `expiration` and `user-id`."""
LARGEST = FRAME_MAX - 8 - 14
"""Of the properties in a header frame: what is left of it beside the frame's ends, the class, the size of the body and the flags."""


def fields(encoded):
    """The members of an encoded table as {name: name and value}, without a look into what is nested."""
    sizes, found, at = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"V": 0, b"D": 5}, {}, 0
    while at < len(encoded):
        start, at = at, at + 1 + encoded[at]
        name, tag, at = encoded[start + 1 : at], encoded[at : at + 1], at + 1
        nested = tag in b"SxFA"
        at += 4 + struct.unpack(">I", encoded[at : at + 4])[0] if nested else sizes.get(tag, 4 if tag in b"Iif" else 8)
        found[name] = encoded[start:at]
    return found


def nested(depth, name=b""):
    """A table in a table in a table ..."""
    level = len(short(name)) + 5
    return b"".join(short(name) + b"F" + struct.pack(">I", level * (depth - number)) for number in range(1, depth + 1))


def arrays(depth):
    return short("deep") + b"".join(b"A" + struct.pack(">I", 5 * (depth - number)) for number in range(1, depth + 1))


def of_size(octets, tag=b"S"):
    """A header table of so many octets, without its length."""
    member = short("filler") + tag
    return member + long((b"f" if tag == b"S" else b"V") * (octets - len(member) - 4))


def entry(queue, reason=b"rejected", count=(b"l", 1), time=(b"T", 1_600_000_000), exchange=(b"S", b"x"), keys=(b"A", [(b"S", b"k")])):
    return b"F", [("count", *count), ("reason", b"S", reason), ("queue", b"S", queue), ("time", *time), ("exchange", *exchange), ("routing-keys", *keys)]


@dataclass(frozen=True)
class Hostile:
    """A message by its key and its header table, or by flags and properties."""

    headers: bytes = b""
    key: bytes = b"key"
    flags: int = HEADERS
    properties: bytes = b""
    parked: bool = False
    """It fits no frame when a death is added to it."""
    crashes_3x: bool = False
    """At a native death the queue of 3.10 crashes, with or without a proxy (4.4)."""

    def content(self):
        """Flags and properties."""
        return struct.pack(">H", self.flags) + (long(self.headers) if self.flags == HEADERS else self.properties)


ODD = b"\xff\xfe\x00\x80"


def hostile(source, depth):
    """All of them, for the queue in which they die. To make tables of that depth takes a broker time in its square: with 20,000 some seconds."""

    def history(*entries, **more):
        return Hostile(table([("x-death", b"A", list(entries))])[4:], **more)

    return {
        "key": Hostile(key=ODD * 63),
        "short strings": Hostile(flags=SHORT_STRINGS, properties=short(ODD * 63) * 8),
        "header names": Hostile(table([(ODD, b"S", ODD), (b"", b"x", ODD), (ODD * 63, b"V", None), (b"A" * 255, b"F", [(ODD, b"S", ODD)])])[4:]),
        "tables in tables": Hostile(nested(depth)),
        "arrays in arrays": Hostile(arrays(depth // 4)),
        "120,000 members": Hostile(of_size(120_000, b"A")),
        "a full frame": Hostile(of_size(LARGEST - 4), parked=True),
        "a full frame of members": Hostile(of_size(LARGEST - 4, b"A"), parked=True),
        "deaths that look like a cycle": history(*[entry(source, reason) for reason in (b"expired", b"rejected", b"maxlen", b"expired")] * 3),
        "as many deaths as fit": history(*[entry(b"q%d" % number) for number in range(900)]),
        "deaths that say nothing": history(*[(b"F", [])] * 4_000),
        "deaths that are no tables": history(*[(b"V", None), (b"S", b"text"), (b"A", []), (b"I", 3)] * 100, crashes_3x=True),
        "deaths counted in words": history(entry(source, b"expired", (b"S", b"many")), entry(source, count=(b"V", None)), crashes_3x=True),
        "deaths of other types": history(entry(b"q", time=(b"S", b"now"), exchange=(b"A", []), keys=(b"S", b"k")), (b"F", [("queue", b"I", 1), ("reason", b"F", [])])),
        "a number of deaths": Hostile(table([("x-death", b"I", 7), ("x-first-death-queue", b"V", None)])[4:]),
    }


def publish(raw, exchange, message, body):
    content = Frame(HEADER, 1, struct.pack(">HHQ", 60, 0, len(body)) + message.content())
    raw.send(method(1, PUBLISH, b"\0\0" + short(exchange) + short(message.key) + b"\0"), content, Frame(BODY, 1, body))


def get(raw, queue):
    """(delivery tag, routing key, flags, properties, body) of the next message of the queue, None if there is none."""
    raw.send(method(1, GET, b"\0\0" + short(queue) + b"\0"))
    answer = raw.frame()
    assert answer.id in (GET_OK, GET_EMPTY), answer
    if answer.id == GET_EMPTY:
        return None
    arguments = answer.arguments
    tag, _, _, key = arguments.number(">Q"), arguments.number(">B"), arguments.short(), arguments.short()
    header, body = raw.frame().payload, b""
    size, flags = struct.unpack(">QH", header[4:14])
    while len(body) < size:
        body += raw.frame().payload
    return tag, key, flags, header[14:], body


def without_deaths(properties):
    """The members of headers that no death wrote; L is l after a native one (4.6)."""
    ours = (b"x-death", b"x-first-death-", b"x-last-death-", b"x-delivery-count", b"x-acquired-count", b"x-parked-", b"x-dlx-proxy-")
    return {name: member for name, member in fields(properties[4:]).items() if not name.startswith(ours)}


@pytest.mark.parametrize("kind, reason", [(kind, reason) for kind in ("classic", "quorum") for reason in ("rejected", "expired", "maxlen")])
def test_each_arrives_or_is_parked(scene, kind, reason):
    """A healthy message before and after each of them."""
    if scene.via.mode == "rejects-only" and reason != "rejected":
        pytest.skip("the broker's own affair")
    native = scene.via.is_direct or scene.via.mode == "rejects-only"
    dlx, entrance, sink = scene.exchange("dlx"), scene.exchange("entrance"), scene.queue("sink")
    scene.bind(sink, dlx)
    source = scene.name("source")
    dies = {"rejected": [], "expired": [("x-message-ttl", b"I", 1)], "maxlen": [("x-max-length", b"I", 1)]}[reason]
    # By length and by age they come to the proxy in the same way, and the broker takes its time for the deepest.
    depth = 20_000 if kind == "classic" and reason != "maxlen" and not native else 4_000
    crash = (reason != "rejected" or scene.via.is_direct) and not scene.via.broker.is_4x
    healthy = Hostile(table([("healthy", b"t", True)])[4:])
    sent = {}
    for label, message in hostile(source.encode(), depth).items():
        if not (crash and message.crashes_3x):
            for place, one in (("before", healthy), ("itself", message), ("after", healthy)):
                sent[f"{source} {label}: {place}".encode()] = one
    arrived, parked = {}, {}
    with Raw(scene.via) as raw, Raw(scene.via, direct=True) as operator:
        raw.open_channel()
        operator.open_channel()
        raw.send(declare(1, source, durable=True, fields=[("x-queue-type", b"S", kind), ("x-dead-letter-exchange", b"S", dlx), *dies]))
        raw.expect(DECLARE_OK)
        scene.queues.append(source)
        scene.bind(source, entrance)
        for body, message in sent.items():
            publish(raw, entrance, message, body)
            if reason == "rejected":
                tag = until(lambda: get(raw, source), f"{body} in {source}")[0]
                raw.send(method(1, REJECT, struct.pack(">Q", tag) + b"\0"))
        if reason == "maxlen":
            publish(raw, entrance, healthy, b"which pushes out the last one")

        def everywhere():
            for client, queue, found in ((raw, sink, arrived), (operator, "dlx-proxy.parked", parked)):
                while not (client is operator and native) and (got := get(client, queue)) is not None:
                    found.setdefault(got[4], []).append(got)
            return {*arrived, *parked} >= {*sent}

        until(everywhere, lambda: f"missing: {sorted({*sent} - {*arrived} - {*parked})}", pause=0.05, progress=lambda: (len(arrived), len(parked)))

    for body, message in sent.items():
        ((_, key, flags, properties, _),) = arrived.get(body, []) + parked.get(body, [])
        assert (body in parked) == (message.parked and not native), body
        assert key == message.key, body
        if message.flags == HEADERS:
            assert flags == HEADERS, body
            assert without_deaths(properties) == without_deaths(message.content()[2:]), body
            newest = fields(properties[4:])[b"x-death"]
            assert long("dlx-proxy.intake" if body in parked else source) in newest[:200], body
        else:
            assert flags == message.flags | HEADERS, body
            came = Reader(properties)
            before, headers = came.take(2 * len(short(ODD * 63))), came.long()
            assert before + came.data == message.properties, body
            assert fields(headers).keys() >= {b"x-death"}, body


LARGE = 16 * 2**20


@pytest.fixture
def large_frames(own):
    """A broker that takes frames of 16 MiB, and connections to it that know."""
    broker = own.via.broker
    before = broker.eval("{ok, Max} = application:get_env(rabbit, frame_max), Max.").strip()
    broker.eval(f"application:set_env(rabbit, frame_max, {LARGE}).")
    try:
        own.restart()
        yield own
    finally:
        broker.eval(f"application:set_env(rabbit, frame_max, {before}).")


@pytest.mark.once
@pytest.mark.proxied
def test_headers_of_a_million_members(large_frames):
    """The proxy's own links take frames of 1 MiB: what is larger is parked. Others need not wait for it."""
    own = large_frames
    member = b"S" + long("eleven more")

    def of(members):
        return Hostile(short("members") + b"A" + long(member * members))

    sink, healthy = own.queue("sink"), Hostile(table([("healthy", b"t", True)])[4:])
    cases = {"a million": (of((LARGE - 64) // len(member)), True), "a tenth": (of(100_000), True), "a twentieth": (of(50_000), False)}
    way = SimpleNamespace(broker=own.via.broker, address=own.proxy.address, vhost=own.via.vhost)
    with Raw(way, frame_max=LARGE) as raw, Raw(own.via, direct=True, frame_max=LARGE) as operator:
        for connection in (raw, operator):
            connection.open_channel()
        for reason, dies in (("rejected", []), ("expired", [("x-message-ttl", b"I", 1)])):
            source = f"{PREFIX}-{reason}"
            to_sink = [("x-dead-letter-exchange", b"S", ""), ("x-dead-letter-routing-key", b"S", sink)]
            raw.send(declare(1, source, durable=True, fields=to_sink + dies))
            raw.expect(DECLARE_OK)
            own.queues.append(source)
            for label, (message, parked) in cases.items():
                since = time.monotonic()
                for body, one in ((b"before", healthy), (label.encode(), message), (b"after", healthy)):
                    publish(raw, "", replace(one, key=source.encode()), body)
                    if reason == "rejected":
                        tag = until(lambda: get(raw, source), f"{body} in {source}")[0]
                        raw.send(method(1, REJECT, struct.pack(">Q", tag) + b"\0"))
                wanted = [b"before", b"after"] if parked else [b"before", b"after", label.encode()]
                arrived = [until(lambda: get(raw, sink), f"{wanted} in {sink}") for _ in wanted]
                assert sorted(body for *_, body in arrived) == sorted(wanted)
                found = [until(lambda: get(operator, PARKED), f"{label} parked")] if parked else [got for got in arrived if got[4] == label.encode()]
                ((_, key, _, properties, body),) = found
                assert body == label.encode()
                assert without_deaths(properties)[b"members"] == message.headers
                assert long(f"{PREFIX}.intake" if parked else source) in fields(properties[4:])[b"x-death"]
                print(f"{own.via.broker.version} {reason} {label}: {time.monotonic() - since:.1f} s")
    assert own.losses() == 0
