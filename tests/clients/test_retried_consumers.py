"""Retries under consumers of many kinds: those that settle by the thousand, leave, share a queue, or want what is urgent first."""

import time

import pytest

from lab import until
from retrying import Consumer, counted, counts

pytestmark = [pytest.mark.proxied, pytest.mark.once]


def publish(scene, queue, count):
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        scene.channel.basic_publish("", queue, body)
    return bodies


def test_a_thousand_settled_by_three_words(scene):
    dlx, sink = scene.target()
    retried = {"kind": "classic", "dlx": dlx, "retry_min": 200, "limit": 1}
    client = scene.via.connect()
    queue = scene.queue("work", channel=client.channel(), **retried)
    bodies = publish(scene, queue, 1000)
    consumer = Consumer(client, queue)
    taken = consumer.take(1000)
    consumer.ack(taken[5])
    since = time.monotonic()
    consumer.nack(taken[700], multiple=True)
    consumer.channel.basic_ack(taken[-1].tag, multiple=True)
    returned = bodies[:5] + bodies[6:701]
    back = consumer.take(len(returned))
    assert [delivery.body for delivery in back] == returned
    assert all(counted(delivery.properties) == counts(scene.via, 1, 0) for delivery in back)
    assert min(delivery.came for delivery in back) - since >= 0.2, "never early"
    consumer.nack(back[-1], multiple=True)
    assert [body for _, _, body in sink.take(len(returned))] == returned
    until(lambda: scene.via.broker.messages(scene.via.vhost, queue) == 0, "all are settled")
    assert not consumer.arrived and not sink.arrived
    client.close()


@pytest.mark.parametrize("goodbye", [True, False], ids=["closed", "cut"])
def test_a_client_that_leaves_behind_its_nacks(scene, goodbye):
    """A connection that is closed waits for them, so that each counts. One that is lost loses nothing, but may leave some twice."""
    retried = {"kind": "classic", "retry_min": 500, "limit": 3}
    client, count = scene.via.connect(), 300
    queue = scene.queue("work", channel=client.channel(), **retried)
    bodies = publish(scene, queue, count)
    consumer = Consumer(client, queue)
    last = consumer.take(count)[-1]
    since = time.monotonic()
    consumer.nack(last, multiple=True)
    if goodbye:
        client.close()
    else:
        sock = client._impl._transport._sock  # pika would say goodbye
        sock.shutdown(2)
        sock.close()
    heir = scene.via.connect()
    scene.queue("work", channel=heir.channel(), **retried)
    consumer = Consumer(heir, queue)
    consumer.until(lambda: {delivery.body for delivery in consumer.arrived} == set(bodies), lambda: f"{len(consumer.arrived)} are back")
    for delivery in consumer.arrived:
        said = counted(delivery.properties)
        assert said == counts(scene.via, 1, 0) or not goodbye and not said
        assert not said or delivery.came - since >= 0.5, "never early"
    if goodbye:
        assert [delivery.body for delivery in consumer.arrived] == bodies
        assert scene.via.broker.messages(scene.via.vhost, queue) == count
    print(f"{len(consumer.arrived) - count} duplicates")
    heir.close()


def test_a_message_keeps_its_priority(scene):
    """What is more urgent overtakes it while it is away, and what is less does not."""
    queue = scene.queue("work", kind="classic", max_priority=5, retry_min=100)
    scene.publish("", queue, b"returned", priority=3)
    scene.channel.basic_nack(scene.get(queue)[0].delivery_tag, requeue=True)
    scene.publish("", queue, b"later", priority=1)
    scene.publish("", queue, b"sooner", priority=5)
    until(lambda: scene.depth(queue) == 3, "it is back")
    came = [scene.get(queue) for _ in range(3)]
    assert [(body, properties.priority) for _, properties, body in came] == [(b"sooner", 5), (b"returned", 3), (b"later", 1)]


def test_a_single_active_consumer(scene):
    """What it returned is its own again; or its heir's, and goes on where it was."""
    dlx, sink = scene.target()
    clients = [scene.via.connect() for _ in range(2)]
    for client in clients:
        queue = scene.queue("work", channel=client.channel(), kind="classic", single_active=True, dlx=dlx, retry_min=100, limit=3)
    first, heir = (Consumer(client, queue) for client in clients)
    scene.publish("", queue, b"a job")
    for returned in range(4):
        consumer = first if returned < 2 else heir
        delivery = consumer.one()
        assert counted(delivery.properties) == counts(scene.via, returned, 0)
        if returned == 1:
            first.channel.basic_cancel(first.tag)
        consumer.nack(delivery)
    _, properties, body = sink.one()
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"a job", "delivery_limit")
    for client in clients:
        client.close()
