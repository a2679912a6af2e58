"""An exchange is missing, or the broker blocks publishers, in the middle of many deaths. What loses or repeats messages is in `tests/faults`."""

import time
from collections import Counter

import pika
import pytest

from lab import until

pytestmark = pytest.mark.once


def publish_many(scene, queue, count):
    """On a channel that stays: 3.10 forgets what a closed one has not yet handed to a quorum queue."""
    for number in range(count):
        scene.channel.basic_publish("", queue, b"%d" % number)


def reject_all(scene, queues, count):
    """Reject `count` messages as they come."""
    channel = scene.connection.channel()
    rejected = []

    def reject(channel, method, _properties, _body):
        channel.basic_reject(method.delivery_tag, requeue=False)
        rejected.append(method.delivery_tag)

    channel.basic_qos(prefetch_count=500)
    for queue in queues:
        channel.basic_consume(queue, reject)
    until_rejected(scene.connection, rejected, count)
    return channel


def until_rejected(connection, rejected, count):
    work = lambda: connection.process_data_events(time_limit=0.05)
    until(lambda: len(rejected) >= count, lambda: f"{len(rejected)} rejected", pause=work, progress=lambda: len(rejected))


def all_of(arrived, count):
    """Everything arrived, some perhaps twice: how many of those."""
    counts = Counter(body for _, _, body in arrived)
    assert set(counts) == {b"%d" % number for number in range(count)}
    return sum(counts.values()) - count


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_missing_exchange_disturbs_no_other(scene, reason):
    """A publish to it closes a channel (8.2), and with it all confirms that are due there."""
    count = 1000
    dlx, sink = scene.target()
    other = scene.sink("other")
    sources = [scene.source("one", reason, dlx=dlx), scene.source("two", reason, dlx="", dlk=other.queue), scene.source("bad", reason, dlx=scene.name("missing"))]
    for number in range(count):
        for queue in sources:
            scene.channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(message_id=f"{queue}-{number}"))
    if reason == "rejected":
        reject_all(scene, sources, 3 * count).close()
    for each in (sink, other):
        each.wait(lambda arrived: len(arrived) >= count, f"{count} messages")
        assert [body for _, _, body in each.arrived] == [b"%d" % number for number in range(count)]
    if scene.parks(reason):
        parked = lambda: len({f"{sources[2]}-{number}" for number in range(count)} & scene.via.all_parked().keys())
        until(lambda: parked() == count, lambda: f"{parked()} parked", progress=parked)


def test_an_alarm_amid_rejects(scene):
    """The broker stops reading from publishers: rejects pile up until the client is read no more. With a heartbeat of 1 s its
    connection lives through that, and in the end everything arrives."""
    count, via = 6_000, scene.via
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    publish_many(scene, source, count)
    until(lambda: scene.depth(source) == count, lambda: f"{scene.depth(source)} published", progress=lambda: scene.depth(source))
    rejected = []

    def reject(channel, method, _properties, _body):
        channel.basic_reject(method.delivery_tag, requeue=False)
        rejected.append(method.delivery_tag)

    with via.broker.under_memory_alarm():
        # Not before: who waits for the alarm is silent meanwhile.
        client = via.connect(heartbeat=1)
        scene.queue("source", dlx=dlx, channel=client.channel())
        client.channel().basic_consume(source, reject)
        end = time.monotonic() + 8
        while time.monotonic() < end:
            client.process_data_events(time_limit=0.1)
    until_rejected(client, rejected, count)
    client.close()
    sink.wait(lambda arrived: len({body for _, _, body in arrived}) == count, f"{count} messages")
    assert scene.depth(source) == 0
    print(f"{all_of(sink.arrived, count)} duplicates")
