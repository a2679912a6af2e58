"""AMQP 1.0 and whatever else does not begin as AMQP 0-9-1 does: it passes, and the broker answers."""

import socket

import pika
import pytest

from lab import DEADLINE
from programs import javascript, steps

HEADERS = {
    "1.0 without a login": b"AMQP\x00\x01\x00\x00", "1.0, TLS": b"AMQP\x02\x01\x00\x00", "1.0 with a login": b"AMQP\x03\x01\x00\x00",
    "1.1": b"AMQP\x00\x01\x01\x00", "an unknown layer": b"AMQP\x07\x01\x00\x00", "0-8": b"AMQP\x01\x01\x08\x00",
    "0-9": b"AMQP\x01\x01\x00\x09", "0-10": b"AMQP\x01\x01\x00\x0a", "0-9-2": b"AMQP\x00\x00\x09\x02", "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "nothing": b"\x00" * 8, "a part, then the end": b"AMQP",
}


def test_a_library_shows_the_same(way):
    """On 3.x, where AMQP 1.0 is a plugin, the library says that the broker wants another protocol."""
    reports = []
    for url in way.urls("languages-amqp10"):
        with pika.BlockingConnection(pika.URLParameters(way.urls("languages-amqp10")[0])) as connection:
            channel = connection.channel()
            channel.queue_delete("tests")
            channel.queue_declare("tests", durable=True, arguments={"x-queue-type": "classic"})
        reports.append(steps(*javascript("rhea.js"), url))
    direct, proxied = reports
    assert list(direct[0]) == (["connect", "send", "receive", "detach", "refused", "close"] if way.broker.is_4x else ["connect"])
    assert proxied == direct


def answer(address, header):
    """The first bytes of what comes back, and how it goes on."""
    came = b""
    with socket.create_connection(address, timeout=DEADLINE) as stream:
        stream.sendall(header)
        if len(header) < 8:
            stream.shutdown(socket.SHUT_WR)
        try:
            while len(came) < 16:
                more = stream.recv(16 - len(came))
                if not more:
                    return came, "end"
                came += more
        except ConnectionResetError:
            return came, "reset"
    return came, "open"


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_the_broker_answers_a_header(way, header):
    """By a header of its own and the end of the connection, or by the first frame of a protocol that it speaks."""
    direct, proxied = (answer(address, header) for address in way.addresses)
    assert proxied == direct
