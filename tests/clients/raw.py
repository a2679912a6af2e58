"""AMQP 0-9-1 by hand, for what pika does not say: field types, wrong frames, nowait declares, many connections."""

import socket
import struct
from dataclasses import dataclass

from lab import DEADLINE

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = ((10, method) for method in (10, 11, 30, 31, 40, 41, 50, 51))
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = ((20, method) for method in (10, 11, 40, 41))
DECLARE, DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK = (60, 10), (60, 11)
PUBLISH, GET, GET_OK, GET_EMPTY, REJECT = (60, 40), (60, 70), (60, 71), (60, 72), (60, 90)
NUMBERS = {b"b": ">b", b"B": ">B", b"s": ">h", b"u": ">H", b"I": ">i", b"i": ">I", b"l": ">q", b"L": ">Q", b"f": ">f", b"d": ">d", b"T": ">Q"}
"""Field types of a fixed size, in RabbitMQ's dialect; the others are t, D, S, x, A, F and V."""


def short(text):
    text = text.encode() if isinstance(text, str) else text
    return bytes([len(text)]) + text


def long(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(text)) + text


def value(tag, content):
    """One field value. `content`: bytes for S and x, (scale, number) for D, [(tag, content)] for A, a table's list for F."""
    if tag in NUMBERS:
        return tag + struct.pack(NUMBERS[tag], content)
    match tag:
        case b"t":
            return tag + bytes([content])
        case b"D":
            return tag + struct.pack(">Bi", *content)
        case b"S" | b"x":
            return tag + long(content)
        case b"A":
            return tag + long(b"".join(value(*item) for item in content))
        case b"F":
            return tag + table(content)
        case b"V":
            return tag
    raise ValueError(tag)


def table(fields):
    """A field table of [(name, tag, content)], in that order."""
    return long(b"".join(short(name) + value(tag, content) for name, tag, content in fields))


class Reader:
    """Takes values off the front of some bytes."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        assert len(self.data) >= count, "the bytes end too early"
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, layout):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def short(self):
        return self.take(self.number(">B"))

    def long(self):
        return self.take(self.number(">I"))

    def table(self):
        inner, fields = Reader(self.long()), []
        while inner.data:
            fields.append((inner.short(), *inner.value()))
        return fields

    def value(self):
        tag = self.take(1)
        if tag in NUMBERS:
            return tag, self.number(NUMBERS[tag])
        match tag:
            case b"t":
                return tag, bool(self.number(">B"))
            case b"D":
                return tag, (self.number(">B"), self.number(">i"))
            case b"S" | b"x":
                return tag, self.long()
            case b"A":
                inner, items = Reader(self.long()), []
                while inner.data:
                    items.append(inner.value())
                return tag, items
            case b"F":
                return tag, self.table()
            case b"V":
                return tag, None
        raise ValueError(tag)


@dataclass(frozen=True)
class Frame:
    kind: int
    channel: int
    payload: bytes

    @property
    def id(self):
        """(class, method) of a method frame, else None."""
        return struct.unpack(">HH", self.payload[:4]) if self.kind == METHOD else None

    @property
    def arguments(self):
        return Reader(self.payload[4:])

    def __bytes__(self):
        return struct.pack(">BHI", self.kind, self.channel, len(self.payload)) + self.payload + b"\xce"

    @property
    def refusal(self):
        """(code, text, class, method) of a channel.close or connection.close."""
        read = self.arguments
        return read.number(">H"), read.short().decode(), read.number(">H"), read.number(">H")


def method(channel, ids, arguments=b""):
    return Frame(METHOD, channel, struct.pack(">HH", *ids) + arguments)


def declare(channel, queue, *, passive=False, durable=False, exclusive=False, auto_delete=False, nowait=False, fields=()):
    bits = passive | durable << 1 | exclusive << 2 | auto_delete << 3 | nowait << 4
    return method(channel, DECLARE, b"\0\0" + short(queue) + bytes([bits]) + table(fields))


def publish(channel, exchange, key, body, fields=(), frame_max=131072, reserved=0):
    """The frames of a basic.publish; its only property is `headers`. `reserved`: flags that no property has."""
    flags = struct.pack(">H", 0x2000 | reserved) + table(fields) if fields else struct.pack(">H", reserved)
    yield method(channel, PUBLISH, b"\0\0" + short(exchange) + short(key) + b"\0")
    yield Frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + flags)
    for start in range(0, len(body), frame_max - 8):
        yield Frame(BODY, channel, body[start : start + frame_max - 8])


def start_ok(user, password):
    capabilities = [(name, b"t", True) for name in ("consumer_cancel_notify", "authentication_failure_close", "publisher_confirms", "basic.nack")]
    properties = table([("capabilities", b"F", capabilities)])
    return method(0, START_OK, properties + short("PLAIN") + long(f"\0{user}\0{password}") + short("en_US"))


def tune_ok(channel_max=2047, frame_max=131072, heartbeat=0):
    return method(0, TUNE_OK, struct.pack(">HIH", channel_max, frame_max, heartbeat))


def open_vhost(vhost):
    return method(0, OPEN, short(vhost) + b"\0\0")


class Raw:
    """One connection, read with a deadline."""

    def __init__(self, via, *, direct=False, first=b"", greet=True, user=None, **tuning):
        address = via.broker.address if direct else via.address
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=DEADLINE)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.write(first)
        if greet:
            login = via.broker.parameters.credentials
            self.write(PROTOCOL_HEADER)
            self.expect(START)
            self.send(start_ok(user or login.username, "secret" if user else login.password))
            self.expect(TUNE)
            self.send(tune_ok(**tuning), open_vhost(via.vhost))
            self.expect(OPEN_OK)

    def write(self, data):
        self.socket.sendall(data)

    def send(self, *frames):
        self.write(b"".join(map(bytes, frames)))

    def more(self):
        """Read once into the buffer; False at the end of the stream, which may also be a reset."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def frame(self):
        """The next frame, None at the end of the stream."""
        while True:
            if len(self.buffer) >= 7:
                kind, channel, size = struct.unpack(">BHI", self.buffer[:7])
                if len(self.buffer) >= size + 8:
                    frame, end = Frame(kind, channel, self.buffer[7 : size + 7]), self.buffer[size + 7]
                    assert end == 0xCE, f"end octet {end:#x} behind {frame}"
                    self.buffer = self.buffer[size + 8 :]
                    return frame
            if not self.more():
                assert not self.buffer, f"cut inside a frame: {self.buffer}"
                return None

    def expect(self, ids):
        """The next frame that is no heartbeat, which has to be this method."""
        while (frame := self.frame()) is not None and frame.kind == HEARTBEAT:
            pass
        assert frame is not None and frame.id == ids, f"{frame} instead of {ids}"
        return frame

    def open_channel(self, channel=1):
        self.send(method(channel, CHANNEL_OPEN, b"\0"))
        self.expect(CHANNEL_OPEN_OK)

    def answers(self, *last):
        """Every frame up to the first connection.close, the end of the stream, or a method in `last`."""
        frames = []
        while (frame := self.frame()) is not None:
            frames.append(frame)
            if frame.id in (CLOSE, *last):
                break
        return frames

    def everything(self):
        """All bytes until the other side ends the stream."""
        while self.more():
            pass
        return self.buffer

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
