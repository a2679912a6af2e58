"""Queues that are made anew with other arguments while their clients stay connected."""

import threading
import time

import pika
import pytest

from console import management
from lab import until
from scene import INTAKE, PREFIX, arguments
from test_adoption import asked, queues, quoted


def queue_of(own, name):
    """What the management API says of a queue."""
    return asked(own.via, f"queues/{quoted(own.via.vhost)}/{quoted(name)}?disable_stats=true&enable_queue_totals=true")


def altered(own, name, *words, code=0):
    return queues(own, "alter", name, *words, "--approve", code=code)


@pytest.fixture
def altering(own):
    own.restart(management_url=management(own.via))
    return own


class Load:
    """A publisher and consumers of a queue, each on a connection of its own through the proxy."""

    def __init__(self, own, queue, exchange, key, consumers=2):
        self.own, self.queue, self.exchange, self.key = own, queue, exchange, key
        self.got, self.errors, self.ended = [], [], threading.Event()
        self.sent = 0
        self.threads = [threading.Thread(target=self._publish), *(threading.Thread(target=self._consume) for _ in range(consumers))]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def _guarded(self, work):
        try:
            with self.own.via.connect() as connection, connection.channel() as channel:
                work(connection, channel)
        except Exception as error:  # noqa: BLE001 - a thread's errors are the test's
            self.errors.append(repr(error))

    def _publish(self):
        def work(connection, channel):
            channel.confirm_delivery()
            while not self.ended.is_set():
                channel.basic_publish(self.exchange, self.key, b"%d" % self.sent, mandatory=True)
                self.sent += 1

        self._guarded(work)

    def _consume(self):
        def work(connection, channel):
            def take(channel, method, _, body):
                self.got.append(int(body))
                channel.basic_ack(method.delivery_tag)

            channel.basic_qos(prefetch_count=10)
            channel.basic_consume(self.queue, take)
            while not (self.ended.is_set() and len(self.got) >= self.sent):
                connection.process_data_events(time_limit=0.05)

        self._guarded(work)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_is_made_anew_under_its_clients(altering, kind):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", kind=kind, ttl=30000, dlx=own.exchange("dead"), max_length=1000)
    own.bind(name, exchange, "order.#")
    with Load(own, name, exchange, "order.new", consumers=1) as load:
        until(lambda: load.sent > 50 or load.errors, "messages")
        plan = queues(own, "alter", name, "--set", "x-message-ttl=60000", "--unset", "x-max-length", "--dry-run")
        assert "x-message-ttl: 30000 -> 60000" in plan and "x-max-length: 1000 -> not set" in plan
        said = altered(own, name, "--set", "x-message-ttl=60000", "--unset", "x-max-length")
        assert "Clients waited for" in said, said
        sent = load.sent
        until(lambda: load.sent > sent + 50 or load.errors, "more messages")
    assert not load.errors
    assert load.got == list(range(load.sent))
    now = queue_of(own, name)["arguments"]
    assert now["x-message-ttl"] == 60000 and "x-max-length" not in now
    assert now["x-dead-letter-exchange"].startswith(PREFIX) and INTAKE
    assert not [queue for queue in asked(own.via, f"queues/{quoted(own.via.vhost)}") if "altering" in queue["name"] or "trial" in queue["name"]]
