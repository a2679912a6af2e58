"""The broker is away: clients are refused at once, /readyz says so, and all is well when it is back."""

import os
import socket
import threading
import time

import pika
import pytest

from lab import DEADLINE, PATIENT, Proxy, until
from raw import PROTOCOL_HEADER

pytestmark = [pytest.mark.once, pytest.mark.proxied]


class Relay:
    """A door before the broker: shut (connections are refused) or open."""

    def __init__(self, address):
        self.broker = address
        self.sockets, self.door = [], None
        # It never listens, and keeps the port ours while the door is shut.
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.port.bind(("127.0.0.1", 0))
        self.address = self.port.getsockname()

    def open(self):
        self.door = socket.create_server(self.address, reuse_port=True)
        threading.Thread(target=self._serve, args=(self.door,), daemon=True).start()

    def _serve(self, door):
        while True:
            try:
                here, _ = door.accept()
                there = socket.create_connection(self.broker)
            except OSError:
                return
            self.sockets += [here, there]
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def shut(self):
        for each in [self.door, *self.sockets] if self.door else []:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        self.sockets, self.door = [], None


def greeting(proxy):
    """What a client hears that greets the proxy, and how long that takes."""
    since = time.monotonic()
    with socket.create_connection(proxy.address, timeout=DEADLINE) as client:
        client.sendall(PROTOCOL_HEADER)
        try:
            return client.recv(100), time.monotonic() - since
        except ConnectionResetError:
            return b"", time.monotonic() - since


def test_broker_away(via, tmp_path):
    relay = Relay(via.broker.address)
    login = via.broker.parameters.credentials
    upstream = f"amqp://{login.username}:{login.password}@127.0.0.1:{relay.address[1]}"
    proxy = Proxy(upstream, "takeover", tmp_path / "log")
    try:
        for _ in range(2):  # away at start; and away later
            until(lambda: proxy.get("/readyz")[0] == 503, "/readyz says no")
            assert proxy.get("/healthz")[0] == 200
            said, after = greeting(proxy)
            assert said == b"" and after < 8, "that would be handshake-timeout"
            relay.open()
            proxy.wait_ready()
            parameters = pika.ConnectionParameters(*proxy.address, via.vhost, login, **PATIENT)
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            sink, source = (f"away.{os.getpid()}.{name}" for name in ("sink", "source"))
            channel.queue_declare(sink, durable=True)
            channel.queue_declare(source, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": sink})
            channel.basic_publish("", source, b"body")
            got = until(lambda: next((got for got in [channel.basic_get(source)] if got[0]), None), "a message")
            channel.basic_reject(got[0].delivery_tag, requeue=False)
            dead = until(lambda: next((got for got in [channel.basic_get(sink)] if got[0]), None), "its dead letter")
            channel.basic_ack(dead[0].delivery_tag)
            channel.basic_qos(prefetch_count=1)  # the ack is through
            relay.shut()
            with pytest.raises(pika.exceptions.AMQPError):
                while True:
                    connection.process_data_events(time_limit=1)
        channel = via.direct.channel()
        for queue in (sink, source):
            channel.queue_delete(queue)
        channel.close()
    finally:
        relay.shut()
        relay.port.close()
        proxy.stop()

