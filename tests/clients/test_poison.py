"""What the intake cannot or must not publish ends in the parking queue, and nothing behind it has to wait for that (10.2)."""

import re
import uuid

import amqp10
import pika
import pytest

from lab import Proxy, until

pytestmark = [pytest.mark.once, pytest.mark.proxied]

PREFIX = "poison"
"""A proxy of its own, with an intake of its own: a poisoned parking queue is nothing for the neighbours."""


class Own:
    """A proxy in front of the broker of this test, its intake queue of the given type, and a connection through it."""

    def __init__(self, via, kind, log):
        self.via = via
        self.proxy = Proxy(via.broker.url, "takeover", log, DLX_PROXY_PREFIX=PREFIX, DLX_PROXY_INTAKE_QUEUE_TYPE=kind)
        self.queues = []
        self.proxy.wait_ready()
        login = via.broker.parameters.credentials
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(*self.proxy.address, via.vhost, login, heartbeat=0))
        self.channel = self.connection.channel()
        until(lambda: self.metric("dlx_proxy_intake_consuming") == 1, self.proxy.text)

    def queue(self, label, **arguments):
        """A queue declared through the proxy."""
        name = f"{PREFIX}-{label}"
        self.channel.queue_declare(name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
        self.queues.append(name)
        return name

    def depth(self, queue):
        with self.via.direct.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def parked(self, count):
        """So many messages, once they are parked."""
        until(lambda: self.depth(f"{PREFIX}.parked") >= count, lambda: f"{self.depth(f'{PREFIX}.parked')} of {count} parked", deadline=30)
        with self.via.direct.channel() as channel:
            return [channel.basic_get(f"{PREFIX}.parked", auto_ack=True) for _ in range(count)]

    def metric(self, name):
        """The metric of this vhost, summed over its other labels but for the publisher's link."""
        lines = [line for line in self.proxy.get("/metrics")[1].splitlines() if re.match(rf"{name}{{.*vhost=\"{self.via.vhost}\"", line)]
        return sum(int(line.split()[-1]) for line in lines if 'link="publisher"' not in line)

    def losses(self):
        """How often its intake link was lost."""
        return self.metric("dlx_proxy_link_failures_total")

    def close(self):
        if self.connection.is_open:
            self.connection.close()
        self.proxy.stop()
        with self.via.direct.channel() as channel:
            for queue in [*self.queues, f"{PREFIX}.intake", f"{PREFIX}.parked"]:
                channel.queue_delete(queue)
            for exchange in self.via.broker.ctl("-q", "list_exchanges", "-p", self.via.vhost, "name").split():
                if exchange.startswith(PREFIX):
                    channel.exchange_delete(exchange)


@pytest.fixture
def own(via, request, tmp_path):
    own = Own(via, getattr(request, "param", "quorum"), tmp_path / "log")
    yield own
    own.close()


both_intakes = pytest.mark.parametrize("own", ["quorum", "classic"], indirect=True)


@pytest.mark.parametrize("before", [1, 300])
def test_a_message_that_no_consumer_can_have_is_shed(own, before):
    """RabbitMQ 4 closes the connection of a 0-9-1 consumer at each delivery of an AMQP 1.0 message with a `uuid` property."""
    if not own.via.broker.is_4x:
        pytest.skip("AMQP 1.0 is a plugin on 3.x")
    behind = 200
    sink = own.queue("sink")
    source = own.queue("source", x_queue_type="classic", x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
    login = own.via.broker.parameters.credentials
    sender = amqp10.Connection(own.via.broker.address, own.via.vhost, login.username, login.password)
    bodies = [b"%d" % number for number in range(before + behind)]
    # Behind the first, which lives the longest, all die at once (1.2): the intake finds them as one heap.
    good = [amqp10.message(body, ttl=1 if number else 2000) for number, body in enumerate(bodies)]
    poison = amqp10.message(b"poison", ttl=1, id=amqp10.uuid(uuid.uuid4()))
    sender.publish(source, *good[:before], poison, *good[before:])
    sender.close()

    until(lambda: own.depth(sink) >= len(bodies), lambda: f"{own.depth(sink)} of {len(bodies)} arrived; {own.losses()} losses", deadline=90)
    until(lambda: own.depth(f"{PREFIX}.parked") == 1, "the poison parked", deadline=30)
    until(lambda: own.depth(f"{PREFIX}.intake") == 0, "intake is empty")
    print(f"{own.losses()} losses")
    assert 1 <= own.losses() <= 21
    arrived = [own.channel.basic_get(sink, auto_ack=True)[2] for _ in range(own.depth(sink))]
    assert set(arrived) == set(bodies)
    assert own.depth(f"{PREFIX}.parked") == 1, "none of the others"


@both_intakes
def test_a_cycle_of_at_least_once_is_parked(own):
    """It must not be dropped (6.3)."""
    name = f"{PREFIX}-cycle"
    own.queue(
        "cycle", x_queue_type="quorum", x_message_ttl=1, x_overflow="reject-publish", x_dead_letter_strategy="at-least-once",
        x_dead_letter_exchange="", x_dead_letter_routing_key=name)
    own.channel.basic_publish("", name, b"round and round", pika.BasicProperties(message_id="the cycle"))
    [(_, properties, body)] = own.parked(1)
    assert (properties.message_id, body) == ("the cycle", b"round and round")
    deaths = [(death["queue"], death["reason"], death["count"]) for death in properties.headers["x-death"]]
    assert deaths == [(f"{PREFIX}.intake", "rejected", 1), (name, "expired", 1)]


@both_intakes
def test_what_is_no_signal_is_parked(own):
    """Whoever may write to the default exchange reaches the intake queue, past the proxy; that gives no rights."""
    sink = own.queue("sink")
    forged = {"x-death": [{"queue": "q", "reason": "expired", "exchange": "", "routing-keys": [sink], "count": 1}]}
    with own.via.direct.channel() as channel:
        for number, headers in enumerate([None, {}, {"x-death": "none"}, {"x-death": []}, forged]):
            channel.basic_publish("", f"{PREFIX}.intake", b"%d" % number, pika.BasicProperties(headers=headers))
    assert [body for _, _, body in own.parked(5)] == [b"%d" % number for number in range(5)]
    until(lambda: own.depth(f"{PREFIX}.intake") == 0, "intake is empty")
    assert own.depth(sink) == 0
