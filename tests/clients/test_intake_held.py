"""Signals that the intake holds for longer than the broker's `consumer_timeout` (S9.5). From 4.3 on it asks for a longer one itself."""

import time
from contextlib import contextmanager

import pytest

from lab import until
from own import INTAKE, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]


@contextmanager
def policy(own, name, queue, definition, priority=0):
    broker, vhost = own.via.broker, own.via.vhost
    broker.set_policy(vhost, name, f"^{queue}$", definition, priority)
    try:
        yield
    finally:
        broker.clear_policy(vhost, name)


def test_what_it_holds_for_longer_than_a_policy_says_arrives_once(own):
    if not own.via.broker.is_from(4, 3):
        pytest.skip("older brokers look once a minute, and 3.10 has no such policy")
    with policy(own, "held", rf"{PREFIX}\.intake", {"consumer-timeout": 500}, 9):
        own.restart(nack_retries="12")
        sink = own.queue("sink")
        source = own.queue("source", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
        bodies = [b"%d" % number for number in range(20)]
        with policy(own, "full", sink, {"max-length": 0, "overflow": "reject-publish"}):
            for body in bodies:
                own.publish(source, body)
            # Several times as long as the policy says.
            time.sleep(4)
        until(lambda: own.depth(sink) >= len(bodies), lambda: f"{own.depth(sink)} have arrived", progress=lambda: own.depth(sink))
        until(lambda: own.depth(INTAKE) == 0, "nothing is left")
        arrived = [own.channel.basic_get(sink, auto_ack=True)[2] for _ in range(own.depth(sink))]
        assert sorted(arrived) == sorted(bodies)
        said = own.proxy.text()
        assert own.losses() == 0 and "reuse" not in said and "timed out" not in said, said
