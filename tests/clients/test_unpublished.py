"""Returns that cannot be published: nothing is lost, counted or killed by the broker's own limit, and nothing comes back at once for ever."""

import time
from collections import Counter

import pika
import pytest

from lab import until
from test_kept import ALL, KINDS, POLICY, ROOM, SMALL, VHOST, world  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

RETRIES = POLICY + """
definition.delayed-retry-min = 1000
definition.delivery-limit = 100
"""
VERBS = pytest.mark.parametrize("verb", ["basic_nack", "basic_reject"])


@VERBS
@KINDS
def test_an_alarm(world, kind, verb):
    """A publisher that is blocked refuses what comes."""
    world = world(kind, RETRIES)
    seen = Counter()

    def once(channel, method, _properties, body):
        seen[body] += 1
        if seen[body] == 1:
            getattr(channel, verb)(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)

    first = world.channel.basic_get("source")
    with world.broker.under_memory_alarm():
        once(world.channel, *first)
        until(lambda: world.metric("dlx_proxy_publisher_blocked") == 1, "a publisher that is blocked")
        world.work(6)  # what comes now is refused at once
        world.channel.basic_qos(prefetch_count=5)
        world.channel.basic_consume("source", once)
        until(lambda: world.metric("dlx_proxy_rejects_kept_total") >= 5, "five that are kept", pause=lambda: world.work(0.05))
        world.work(3)
        assert set(seen.values()) == {1} and len(seen) == 6, seen
    twice = lambda: all(seen[body] >= 2 for body in ALL)  # noqa: E731
    until(twice, lambda: f"seen {seen}", pause=lambda: world.work(0.05))
    assert set(seen.values()) == {2}, seen
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
    assert world.metric('dlx_proxy_events_total{event="kept_returned"}') == len(seen) - 1
    world.client.close()
    until(lambda: world.depth("source") == 1, lambda: f"{world.depth('source')} messages are left")


def full(world, kind):
    """A queue that is full, and a message of it that its consumer has."""
    queue = "source.full"
    arguments = {"x-queue-type": kind, "x-max-length": 2, "x-overflow": "reject-publish"}
    world.channel.queue_declare(queue, durable=True, arguments=arguments)
    world.publish(b"back", queue)
    (tag,) = world.get(1, queue=queue)
    with pytest.raises(pika.exceptions.NackError):
        for _ in range(SMALL):
            world.publish(b"fill", queue)
    return queue, tag


def bodies(world, queue, body):
    """All that is got from the queue until there is such a message."""
    got = []

    def look():
        if (found := world.channel.basic_get(queue, auto_ack=True))[0]:
            got.append(found[2])
        return body in got

    until(look, lambda: f"{got}")
    return got


@KINDS
def test_a_full_queue(world, kind):
    """What comes back waits for room, and nobody calls it a dead letter."""
    world = world(kind, RETRIES)
    queue, tag = full(world, kind)
    world.channel.basic_nack(tag, requeue=True)
    waits = f'dlx_proxy_retries_total{{vhost="{VHOST}",queue="{queue}",outcome="refused"}}'
    until(lambda: world.metric(waits) == 3, "three tries", pause=lambda: world.work(0.05))
    assert bodies(world, queue, b"back")[-1] == b"back"
    assert world.metric("dlx_proxy_dead_letters_total") == 0
    assert world.depth("dlx-proxy.parked") == 0


@KINDS
def test_a_full_queue_without_a_delay(world, kind):
    """The broker requeues it, which never fails."""
    world = world(kind, POLICY + "definition.delivery-limit = 100")
    queue, tag = full(world, kind)
    world.channel.basic_nack(tag, requeue=True)
    left = 'dlx_proxy_fallbacks_total{request="return",cause="queue_full"}'
    until(lambda: world.metric(left) == 1, "a return that is left to the broker", pause=lambda: world.work(0.05))
    assert b"back" in bodies(world, queue, b"back")
    assert world.metric("dlx_proxy_dead_letters_total") == 0
    assert world.depth("dlx-proxy.parked") == 0
