"""Returns that cannot be published: nothing is lost, counted or killed by the broker's own limit, and nothing comes back at once for ever."""

import time
from collections import Counter

import pytest

from lab import until
from test_kept import ALL, KINDS, POLICY, ROOM, SMALL, world  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

RETRIES = POLICY + """
definition.delayed-retry-min = 1000
definition.delivery-limit = 100
"""
VERBS = pytest.mark.parametrize("verb", ["basic_nack", "basic_reject"])


@VERBS
@KINDS
def test_an_alarm(world, kind, verb):
    """Most of what is delivered meanwhile is refused by a publisher that is blocked."""
    world = world(kind, RETRIES)
    seen = Counter()

    def once(channel, method, _properties, body):
        seen[body] += 1
        if seen[body] == 1:
            getattr(channel, verb)(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)

    with world.broker.under_memory_alarm():
        world.channel.basic_qos(prefetch_count=5)
        world.channel.basic_consume("source", once)
        until(lambda: len(seen) == 5, lambda: f"seen {seen}", pause=lambda: world.work(0.05))
        world.work(8)
        assert set(seen.values()) == {1} and len(seen) == 5, seen
        assert world.metric("dlx_proxy_rejects_kept_total") > 0 or world.metric("dlx_proxy_withheld_rejects") == 5
    twice = lambda: all(seen[body] >= 2 for body in ALL)  # noqa: E731
    until(twice, lambda: f"seen {seen}", pause=lambda: world.work(0.05))
    assert max(seen.values()) <= 3, f"one that had left when the alarm came may be there twice: {seen}"
    assert (world.depth("source"), world.depth("dead")) == (0, 0)


@VERBS
@KINDS
def test_larger_than_the_budget(world, kind, verb):
    world = world(kind, RETRIES)
    world.direct.queue_purge("source")
    world.publish(b"x" * (2 * ROOM))
    seen = []

    def back(channel, method, _properties, _body):
        seen.append(time.monotonic())
        getattr(channel, verb)(method.delivery_tag, requeue=True)

    world.channel.basic_consume("source", back)
    until(lambda: len(seen) == 4, lambda: f"seen {len(seen)} times", pause=lambda: world.work(0.05))
    assert all(after - before > pause for before, after, pause in zip(seen, seen[1:], (1, 2, 4))), seen
    assert world.metric("dlx_proxy_rejects_returned_total") == len(seen) - 1
    world.client.close()
    until(lambda: world.depth("source") == 1, lambda: f"{world.depth('source')} messages are left")
