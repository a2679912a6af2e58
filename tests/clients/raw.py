"""AMQP 0-9-1 by hand, for what pika does not say: names that are not UTF-8, odd fields, a PROXY header."""

import socket
import struct
from dataclasses import dataclass

from lab import DEADLINE

METHOD, HEADER, BODY = 1, 2, 3
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = ((10, method) for method in (10, 11, 30, 31, 40, 41))
CHANNEL_OPEN, CHANNEL_OPEN_OK, PUBLISH = (20, 10), (20, 11), (60, 40)
NUMBERS = {b"I": ">i", b"l": ">q", b"T": ">Q"}


def short(text):
    text = text.encode() if isinstance(text, str) else text
    return bytes([len(text)]) + text


def long(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(text)) + text


def value(tag, content):
    """One field value. `content`: bytes for S and x, [(tag, content)] for A, a table's list for F."""
    if tag in NUMBERS:
        return tag + struct.pack(NUMBERS[tag], content)
    match tag:
        case b"S" | b"x":
            return tag + long(content)
        case b"A":
            return tag + long(b"".join(value(*item) for item in content))
        case b"F":
            return tag + table(content)
    raise ValueError(tag)


def table(fields):
    """A field table of [(name, tag, content)], in that order."""
    return long(b"".join(short(name) + value(tag, content) for name, tag, content in fields))


@dataclass(frozen=True)
class Frame:
    kind: int
    channel: int
    payload: bytes

    @property
    def id(self):
        """(class, method) of a method frame, else None."""
        return struct.unpack(">HH", self.payload[:4]) if self.kind == METHOD else None

    def __bytes__(self):
        return struct.pack(">BHI", self.kind, self.channel, len(self.payload)) + self.payload + b"\xce"


def method(channel, ids, arguments=b""):
    return Frame(METHOD, channel, struct.pack(">HH", *ids) + arguments)


def publish(channel, exchange, key, body, fields):
    """The frames of a basic.publish; its only property is `headers`."""
    yield method(channel, PUBLISH, b"\0\0" + short(exchange) + short(key) + b"\0")
    yield Frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + b"\x20\0" + table(fields))
    yield Frame(BODY, channel, body)


class Raw:
    """One connection to a broker, or to a proxy at `address`, read with a deadline. `first`: what it says before the protocol header."""

    def __init__(self, broker, vhost, *, address=None, first=b"", greet=True):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address or broker.address, timeout=DEADLINE)
        self.buffer = b""
        self.socket.sendall(first)
        if greet:
            login = broker.parameters.credentials
            self.socket.sendall(PROTOCOL_HEADER)
            self.expect(START)
            credentials = short("PLAIN") + long(f"\0{login.username}\0{login.password}") + short("en_US")
            self.send(method(0, START_OK, table([]) + credentials))
            self.expect(TUNE)
            self.send(method(0, TUNE_OK, struct.pack(">HIH", 2047, 131072, 0)), method(0, OPEN, short(vhost) + b"\0\0"))
            self.expect(OPEN_OK)

    def send(self, *frames):
        self.socket.sendall(b"".join(map(bytes, frames)))

    def more(self):
        """Read once into the buffer; False at the end of the stream, which may also be a reset."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def expect(self, ids):
        """The next frame, which has to be this method."""
        while len(self.buffer) < 7 or len(self.buffer) < (size := struct.unpack(">I", self.buffer[3:7])[0]) + 8:
            assert self.more(), f"the end instead of {ids}: {self.buffer}"
        kind, channel = struct.unpack(">BH", self.buffer[:3])
        frame, self.buffer = Frame(kind, channel, self.buffer[7 : size + 7]), self.buffer[size + 8 :]
        assert frame.id == ids, f"{frame} instead of {ids}"

    def open_channel(self, channel=1):
        self.send(method(channel, CHANNEL_OPEN, b"\0"))
        self.expect(CHANNEL_OPEN_OK)

    def everything(self):
        """All bytes until the other side ends the stream."""
        while self.more():
            pass
        return self.buffer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
