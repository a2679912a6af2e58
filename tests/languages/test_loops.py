"""Clients as they are, that return whatever they get, for ever: each message comes back later and later, and dies at its limit. Nobody declares
the queue with a word of that: a policy of the proxy says it."""

import pika
import pytest

from lab import until
from programs import java, javascript, steps
from test_languages import value

MIN, LIMIT = 200, 3
DELAYS = [MIN, 2 * MIN, 4 * MIN]
VHOST = "loops"
POLICY = f"""
vhosts = ["{VHOST}"] # ready only with its links: a return that comes before them goes back at once

[[policy]]
name = "work"
vhost = "{VHOST}"
pattern = "^work$"
[policy.definition]
dead-letter-exchange = ""
dead-letter-routing-key = "dead"
delayed-retry-min = {MIN}
delayed-retry-max = 60000
delayed-retry-multiplier = 2
delivery-limit = {LIMIT}
"""


@pytest.fixture(scope="module")
def way(configured):
    return configured(POLICY, [VHOST])


@pytest.fixture
def queues(way):
    """Makes `work`, with these messages, and `dead`."""
    with pika.BlockingConnection(pika.URLParameters(way.urls(VHOST)[0])) as connection:
        channel = connection.channel()

        def make(bodies):
            for queue in ("work", "dead"):
                channel.queue_declare(queue, durable=True)
            for body in bodies:
                channel.basic_publish("", "work", body, pika.BasicProperties(delivery_mode=2))

        yield make
        for queue in ("work", "dead"):
            channel.queue_delete(queue)


def number(headers, broker):
    """How often a message has come back by basic.nack."""
    name = "x-acquired-count" if broker.is_from(4, 3) else "x-delivery-count"
    return int(value(headers[name])) if isinstance(headers, dict) and name in headers else 0


def assert_ended(broker):
    until(lambda: broker.messages(VHOST, "work") == 0, "nothing is left")
    made = [queue for queue in broker.queues(VHOST) if queue.startswith("dlx-proxy.delay.")]
    assert sorted(made) == sorted(f"dlx-proxy.delay.{millis}" for millis in DELAYS)


def assert_right(broker, steps, bodies):
    """Each message was seen as often as it may be, not early, and then died, once."""
    for body in bodies:
        seen = [delivery for delivery in steps["deliveries"]["deliveries"] if value(delivery["body"]) == body]
        assert [number(delivery["headers"], broker) for delivery in seen] == list(range(LIMIT + 1))
        assert {value(delivery["key"]) for delivery in seen} == {"work"}
        assert [value(delivery["redelivered"]) for delivery in seen] == ["false"] + ["true"] * LIMIT
        for delivery, millis in zip(seen[1:], DELAYS, strict=True):
            assert float(value(delivery["waited"])) >= millis, "never early"
    dead = steps["dead"]["deliveries"]
    assert sorted(value(delivery["body"]) for delivery in dead) == sorted(bodies)
    assert {value(delivery["headers"]["x-death"][0]["reason"]) for delivery in dead} == {"delivery_limit"}


@pytest.mark.parametrize("command", [lambda: javascript("loops.js"), lambda: java("Loops")], ids=["amqplib", "amqp-client"])
def test_a_loop_ends(broker, way, queues, command):
    queues([b"a job"])
    said, _ = steps(*command(), way.urls(VHOST)[1], 1, 1)
    assert_right(broker, said, ["a job"])
    assert_ended(broker)


def test_batches_end(broker, way, queues):
    """More than the prefetch, which all go back by one word."""
    bodies = [f"job {number}" for number in range(300)]
    queues([body.encode() for body in bodies])
    said, _ = steps(*java("Loops"), way.urls(VHOST)[1], len(bodies), 250)
    assert_right(broker, said, bodies)
    assert_ended(broker)
