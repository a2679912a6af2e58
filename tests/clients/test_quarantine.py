"""A target that closes the publisher's connection holds up nobody else's dead letters."""

import contextlib
import time

import pika
import pytest

from lab import DEADLINE, until
from own import PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

SOON = 2.0
"""Seconds in which others' dead letters arrive. What waited for each of the bad ones needed minutes."""


@contextlib.contextmanager
def unpublishable(own):
    """A stream that its coordinator has forgotten: publishing to it closes the connection (506)."""
    name, broker = f"{PREFIX}-stream", own.via.broker

    def declare(name):
        with own.via.direct.channel() as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})

    declare(name)
    broker.eval("ra:force_delete_server(coordination, {rabbit_stream_coordinator, node()}).")
    try:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel = own.via.connect(direct=True).channel()
            channel.confirm_delivery()
            channel.basic_publish("", name, b"closes the connection")
        assert closed.value.reply_code == 506
        yield name
    finally:
        # The next stream gets a new coordinator, which cannot delete the old one.
        own.queues.append(f"{PREFIX}-healthy")
        declare(own.queues[-1])
        broker.eval(f'Name = rabbit_misc:r(<<"{own.via.vhost}">>, queue, <<"{name}">>), {{ok, Q}} = rabbit_amqqueue:lookup(Name), '
                   'catch rabbit_amqqueue:internal_delete(Name, <<"tests">>), catch rabbit_amqqueue:internal_delete(Q, <<"tests">>).')


def test_a_target_that_closes_the_connection_holds_up_nobody(own):
    own.restart(give_up_after="8s")
    with unpublishable(own) as bad:
        beside_it(own, bad, count=200)


def beside_it(own, bad, count):
    sink = own.queue("sink")
    sick = own.queue("sick", x_dead_letter_exchange="", x_dead_letter_routing_key=bad)
    sound = own.queue("sound", x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
    for number in range(count):
        own.channel.basic_publish("", sick, b"%d" % number)
    own.channel.basic_publish("", sound, b"beside")
    own.get(sound)
    last = [own.get(sick)[0].delivery_tag for _ in range(count)][-1]
    waits = []

    def arrives(body):
        """All of the neighbour's come in order, and perhaps twice."""
        began = time.monotonic()
        until(lambda: reader.basic_get(sink, auto_ack=True)[2] == body, lambda: f"{body}; before: {waits}", deadline=SOON)
        waits.append(time.monotonic() - began)

    # One in the midst of them, and then one after the other while they are tried.
    with own.via.direct.channel() as reader:
        own.channel.basic_nack(last, multiple=True, requeue=False)
        end = time.monotonic() + DEADLINE
        arrives(b"beside")
        while own.depth(PARKED) < count:
            assert time.monotonic() < end, f"{own.depth(PARKED)} of {count} parked"
            body = b"number %d" % len(waits)
            own.channel.basic_publish("", sound, body)
            own.channel.basic_reject(own.get(sound)[0].delivery_tag, requeue=False)
            arrives(body)
    print(f"{len(waits)} others: {max(waits):.2f} s at most")
    parked = own.parked(own.depth(PARKED))
    assert {body for _, _, body in parked} == {b"%d" % number for number in range(count)}
    assert {(properties.headers["x-parked-exchange"], properties.headers["x-parked-cause"]) for _, properties, _ in parked} == {("", "poison")}
