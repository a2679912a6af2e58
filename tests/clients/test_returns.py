"""`basic.return` names nothing but what it returns: of many dead letters in flight, those that nothing routes are parked, and no others."""

import contextlib

import pika
import pytest

from lab import until
from own import PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

INTERCEPTORS = {"3": None, "4.0": ("incoming_message_interceptors", "{set_header_timestamp, false}, {set_header_routing_node, false}")}
"""What adds a header to each message that comes: the term in which the broker keeps it, and its members. On 3.10 only plugins do."""
NEWEST = ("message_interceptors", "{rabbit_msg_interceptor_timestamp, #{incoming => true, overwrite => false}}, "
          "{rabbit_msg_interceptor_routing_node, #{overwrite => false}}")


@contextlib.contextmanager
def stamping(broker):
    """As if rabbitmq.conf said so."""
    found = next((term for version, term in INTERCEPTORS.items() if broker.version.startswith(version)), NEWEST)
    if found is None:
        pytest.skip("interceptors are a plugin on 3.10")
    key, members = found
    before = f"persistent_term:get({key}, [])"
    broker.eval(f"persistent_term:put({{tests, {key}}}, {before}), persistent_term:put({key}, [{members}]).")
    try:
        yield
    finally:
        broker.eval(f"persistent_term:put({key}, persistent_term:get({{tests, {key}}})).")


@pytest.mark.parametrize("stamped", [False, True], ids=["plain", "stamped"])
def test_a_return_belongs_to_the_message_that_was_not_routed(own, stamped):
    """Bodies and keys are all the same; a headers exchange takes every other one, and the proxy has them all in flight at once. They were published
    before the broker stamped messages, so their dead letters do not come back as they were."""
    count = 100
    sink, exchange = own.queue("sink"), f"{PREFIX}-headers"
    own.channel.exchange_declare(exchange, "headers")
    own.channel.queue_bind(sink, exchange, "", {"x-match": "all", "take": "yes"})
    source = own.queue("source", x_dead_letter_exchange=exchange)
    for number in range(count):
        headers = {"number": number, "take": "no" if number % 2 else "yes"}
        own.channel.basic_publish("", source, b"same", pika.BasicProperties(headers=headers))
    last = [own.get(source)[0].delivery_tag for _ in range(count)][-1]
    with stamping(own.via.broker) if stamped else contextlib.nullcontext():
        own.channel.basic_nack(last, multiple=True, requeue=False)
        until(lambda: own.depth(sink) + own.depth(PARKED) >= count, lambda: f"{own.depth(sink)} routed, {own.depth(PARKED)} parked of {count}")
    with own.via.direct.channel() as channel:
        routed = [channel.basic_get(sink, auto_ack=True) for _ in range(own.depth(sink))]
    parked = own.parked(own.depth(PARKED))
    own.channel.exchange_delete(exchange)

    def numbers(messages):
        return sorted(properties.headers["number"] for _, properties, _ in messages)

    assert stamped == ("timestamp_in_ms" in routed[0][1].headers)
    assert numbers(routed) == list(range(0, count, 2)), "each that is routed, once"
    assert numbers(parked) == list(range(1, count, 2)), "each that is not, and none that is"
    assert {properties.headers["x-parked-cause"] for _, properties, _ in parked} == {"unroutable"}
