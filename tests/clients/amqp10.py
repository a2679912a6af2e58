"""AMQP 1.0 by hand, as far as it takes to publish a message: 0-9-1 has no words for some of its types (10.2)."""

import socket
import struct
from urllib.parse import quote

from lab import DEADLINE

SASL_INIT, SASL_OUTCOME = 0x41, 0x44
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x18
SOURCE, TARGET, ACCEPTED = 0x28, 0x29, 0x24
HEADER, APPLICATION_PROPERTIES, DATA = 0x70, 0x74, 0x75
SENDER = b"\x42"


def uint(number):
    return b"\x70" + struct.pack(">I", number)


def binary(content):
    return b"\xb0" + struct.pack(">I", len(content)) + content


def text(content):
    return b"\xb1" + struct.pack(">I", len(content.encode())) + content.encode()


def symbol(content):
    return b"\xb3" + struct.pack(">I", len(content)) + content.encode()


def uuid(content):
    return b"\x98" + content.bytes


NULL, TRUE = b"\x40", b"\x41"


def compound(tag, items):
    inner = b"".join(items)
    return tag + struct.pack(">II", len(inner) + 4, len(items)) + inner


def section(code, content):
    return b"\x00\x53" + bytes([code]) + content


def described(code, *fields):
    return section(code, compound(b"\xd0", fields))


def message(body, *, ttl, **application_properties):
    """A durable message that lives for `ttl` milliseconds; its application properties are encoded values."""
    pairs = [part for name, value in application_properties.items() for part in (text(name), value)]
    sections = described(HEADER, TRUE, NULL, uint(ttl)) + section(APPLICATION_PROPERTIES, compound(b"\xd1", pairs))
    return sections + section(DATA, binary(body))


class Connection:
    """One connection with one session."""

    def __init__(self, address, vhost, user, password):
        self.socket = socket.create_connection(address, timeout=DEADLINE)
        self.file = self.socket.makefile("rb")
        self._greet(3)
        self._send(1, described(SASL_INIT, symbol("PLAIN"), binary(b"\0%s\0%s" % (user.encode(), password.encode()))))
        assert b"\x50\x00" in (outcome := self._until(SASL_OUTCOME)), outcome
        self._greet(0)
        self._send(0, described(OPEN, text("tests"), text(f"vhost:{vhost}")))
        self._until(OPEN)
        self._send(0, described(BEGIN, NULL, uint(0), uint(1000), uint(1000)))
        self._until(BEGIN)
        self.links = 0

    def _greet(self, protocol):
        header = b"AMQP" + bytes([protocol, 1, 0, 0])
        self.socket.sendall(header)
        assert (answer := self.file.read(8)) == header, answer

    def _send(self, kind, performative):
        self.socket.sendall(struct.pack(">IBBH", len(performative) + 8, 2, kind, 0) + performative)

    def _until(self, code):
        """The next performative of that code; others are no news to a sender."""
        while True:
            head = self.file.read(8)
            assert len(head) == 8, "the connection ended"
            size, offset = struct.unpack(">IB3x", head)
            performative = self.file.read(size - 8)[offset * 4 - 8 :]
            if not performative:
                continue
            assert performative[:2] == b"\x00\x53", performative
            if performative[2] == code:
                return performative
            assert performative[2] in (0x40, FLOW), performative

    def publish(self, queue, *messages):
        """Messages into the queue, each accepted by it."""
        handle, self.links = uint(self.links), self.links + 1
        source, target = described(SOURCE), described(TARGET, text(f"/queues/{quote(queue, safe='')}"))
        self._send(0, described(ATTACH, text(queue), handle, SENDER, NULL, NULL, source, target, NULL, NULL, uint(0)))
        self._until(ATTACH)
        for number, encoded in enumerate(messages):
            self._send(0, described(TRANSFER, handle, uint(number), binary(b"%d" % number), uint(0)) + encoded)
            assert bytes([0x53, ACCEPTED]) in self._until(DISPOSITION), "not accepted"

    def close(self):
        self._send(0, described(CLOSE))
        self._until(CLOSE)
        self.socket.close()
