"""The proxy's own objects at the broker: what becomes of them by other hands."""

import pytest

from lab import until
from own import INTAKE, PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

KILL = """
length([rabbit_networking:close_connection(Pid, "a test") || Pid <- rabbit_networking:connections(),
    {{client_properties, Properties}} <- rabbit_reader:info(Pid, [client_properties]),
    {{<<"connection_name">>, longstr, <<"dlx-proxy intake {vhost}">>}} <- Properties]).
"""
"""Closes the intake links of a vhost."""

BOUND = """
length([Source || {{binding, {{resource, _, exchange, <<"{prefix}/", Source/binary>>}}, _, {{resource, _, queue, <<"{intake}">>}}, _}}
    <- rabbit_binding:list(<<"{vhost}">>)]).
"""
"""How many intake exchanges are bound to the intake queue."""


def test_a_deleted_intake_queue_comes_back_with_its_bindings(own):
    """The clients declared their queues once; they do not come again for that."""
    sinks = [own.queue(f"sink-{number}") for number in range(3)]
    sources = [own.queue(f"source-{sink}", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=sink) for sink in sinks]
    for _ in range(2):
        with own.via.direct.channel() as channel:
            channel.queue_delete(INTAKE)
        bound = lambda: int(own.via.broker.eval(BOUND.format(vhost=own.via.vhost, prefix=PREFIX, intake=INTAKE)))
        until(lambda: bound() == len(sinks), lambda: f"{bound()} are bound again")
        for sink, source in zip(sinks, sources):
            own.channel.basic_publish("", source, b"a body")
            until(lambda: own.depth(sink) == 1, f"a dead letter in {sink}")
            own.channel.queue_purge(sink)


def fetch_and_return(via, times):
    """The message in the parking queue, fetched and returned so often."""
    with via.direct.channel() as channel:
        for _ in range(times):
            got = until(lambda: next((got for got in [channel.basic_get(PARKED)] if got[0]), None), "a parked message")
            channel.basic_reject(got[0].delivery_tag, requeue=True)


def test_what_is_parked_can_be_looked_at_without_end(own):
    """A quorum queue of 4.x drops what was returned 20 times, if nothing else is said."""
    with own.via.direct.channel() as channel:
        channel.basic_publish("", INTAKE, b"no signal")
    until(lambda: own.depth(PARKED) == 1, "parked")
    fetch_and_return(own.via, 30)
    assert [body for _, _, body in own.parked(1)] == [b"no signal"]


def test_a_parking_queue_with_other_arguments_is_used_as_it_is(own):
    """That is told once, not at each link."""
    own.stop()
    with own.via.direct.channel() as channel:
        channel.queue_delete(PARKED)
        channel.queue_declare(PARKED, durable=True, arguments={"x-queue-type": "classic"})
        channel.queue_bind(PARKED, PARKED)
    own.start()
    closed = lambda: own.proxy.text().count(f"'x-queue-type' for queue '{PARKED}'")
    assert closed() == 1, own.proxy.text()
    own.via.broker.eval(KILL.format(vhost=own.via.vhost))
    until(lambda: own.losses() == 1, own.proxy.text)
    until(own.is_consuming, own.proxy.text)
    with own.via.direct.channel() as channel:
        channel.basic_publish("", INTAKE, b"no signal")
    assert [body for _, _, body in own.parked(1)] == [b"no signal"]
    assert closed() == 1, own.proxy.text()
