"""1, 3: each way to die, on classic and quorum queues, and all that the dead letter must look like."""

import pika
import pytest

from expect import Death, check
from lab import until

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture(params=["classic", "quorum"])
def kind(request):
    return request.param


def deliver(scene, queue, count, channel=None):
    """Consume `count` messages of the queue without settling them; their (tag, body)."""
    taken = []
    channel = channel or scene.channel
    consumer = channel.basic_consume(queue, lambda _channel, method, properties, body: taken.append((method.delivery_tag, body)))
    until(lambda: len(taken) >= count, lambda: f"{len(taken)} deliveries", pause=lambda: scene.connection.process_data_events(time_limit=0.05))
    channel.basic_cancel(consumer)
    return taken[:count]


def check_rejected(scene, got, sent, source, dlx, **more):
    deaths = [Death(source, "rejected", "", [source], expiration=sent.properties.expiration)]
    check(got, sent, scene.by("rejected"), deaths, exchange=dlx, key=source, delivered=True, **more)


@pytest.mark.parametrize("verb", ["reject", "nack"])
@pytest.mark.parametrize("expiration", [None, "0600000"])
def test_rejected_while_consumed(scene, kind, verb, expiration):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = scene.publish("", source, expiration=expiration)
    [(tag, _)] = deliver(scene, source, 1)
    if verb == "reject":
        scene.channel.basic_reject(tag, requeue=False)
    else:
        scene.channel.basic_nack(tag, requeue=False)
    check_rejected(scene, sink.one(), sent, source, dlx)


@pytest.mark.parametrize("how", ["last tag", "tag 0"])
def test_nack_multiple_keeps_the_order(scene, kind, how):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = [scene.publish("", source, b"%d" % number) for number in range(50)]
    taken = deliver(scene, source, 50)
    scene.channel.basic_nack(taken[-1][0] if how == "last tag" else 0, multiple=True, requeue=False)
    for got, message in zip(sink.take(50), sent):
        check_rejected(scene, got, message, source, dlx)
    assert not sink.arrived


def test_nack_multiple_spares_later_tags(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = [scene.publish("", source, b"%d" % number) for number in range(4)]
    taken = deliver(scene, source, 4)
    scene.channel.basic_nack(taken[1][0], multiple=True, requeue=False)
    for got, message in zip(sink.take(2), sent):
        check_rejected(scene, got, message, source, dlx)
    scene.channel.basic_ack(taken[2][0])
    scene.channel.basic_reject(taken[3][0], requeue=False)
    check_rejected(scene, sink.one(), sent[3], source, dlx)


@pytest.mark.parametrize("how", ["reject", "nack", "nack tag 0"])
def test_rejected_after_get(scene, kind, how):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    tag = scene.get(source)[0].delivery_tag
    match how:
        case "reject":
            scene.channel.basic_reject(tag, requeue=False)
        case "nack":
            scene.channel.basic_nack(tag, requeue=False)
        case "nack tag 0":
            scene.channel.basic_nack(0, multiple=True, requeue=False)
    check_rejected(scene, sink.one(), sent, source, dlx)


def test_requeued_and_then_rejected(scene, kind):
    """A return is no death (1.5), and what the broker counts of it does not become part of the message (3.6)."""
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.channel.basic_reject(scene.get(source)[0].delivery_tag, requeue=True)
    again = scene.get(source)
    assert again[0].redelivered and "x-death" not in again[1].headers
    scene.channel.basic_reject(again[0].delivery_tag, requeue=False)
    check_rejected(scene, sink.one(), sent, source, dlx)


@pytest.mark.parametrize("target", ["classic", "quorum"])
def test_delivery_counts_are_not_part_of_the_dead_letter(scene, kind, target):
    """What quorum queues add to a delivery, each by itself, is not copied (3.6)."""
    dlx = scene.exchange("dlx")
    queue = scene.queue("sink", kind=target)
    scene.bind(queue, dlx)
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.channel.basic_reject(scene.get(source)[0].delivery_tag, requeue=False)
    by, added = scene.by("rejected"), {}
    if target == "quorum" and not by.is_4x:
        added = {"x-delivery-count": 0}
    if target == "quorum" and by.counts_travel:
        added = {"x-delivery-count": 1, "x-acquired-count": 1}
    check_rejected(scene, scene.get(queue), sent, source, dlx, extra_headers=added)


@pytest.mark.parametrize("expiration", ["20", "00020"])
def test_message_ttl(scene, kind, expiration):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    sent = scene.publish("", source, expiration=expiration)
    deaths = [Death(source, "expired", "", [source], expiration=expiration)]
    check(sink.one(), sent, scene.by("expired"), deaths, exchange=dlx, key=source)


@pytest.mark.parametrize("expiration", [None, "600000"])
def test_queue_ttl(scene, kind, expiration):
    """The queue's TTL leaves no original-expiration, a message's own longer one does (3.2)."""
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, ttl=20)
    sent = scene.publish("", source, expiration=expiration)
    deaths = [Death(source, "expired", "", [source], expiration=expiration)]
    check(sink.one(), sent, scene.by("expired"), deaths, exchange=dlx, key=source)


def test_expired_after_a_return(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, ttl=20)
    # Who consumes already gets it before it expires, however busy the machine is.
    taken = []
    consumer = scene.channel.basic_consume(source, lambda _channel, method, *_: taken.append(method.delivery_tag))
    sent = scene.publish("", source)
    until(lambda: taken, "the delivery", pause=lambda: scene.connection.process_data_events(time_limit=0.05))
    scene.channel.basic_cancel(consumer)
    scene.channel.basic_reject(taken[0], requeue=True)
    deaths = [Death(source, "expired", "", [source])]
    check(sink.one(), sent, scene.by("expired"), deaths, exchange=dlx, key=source, delivered=True)


@pytest.mark.parametrize("bound", [{"max_length": 2}, {"max_bytes": 250_000}], ids=["max-length", "max-length-bytes"])
def test_drop_head(scene, kind, bound):
    """The oldest dies (1.3)."""
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, **bound)
    sent = [scene.publish("", source, b"%d" % number * 100_000, expiration="600000") for number in range(5)]
    for got, message in zip(sink.take(3), sent):
        deaths = [Death(source, "maxlen", "", [source], expiration="600000")]
        check(got, message, scene.by("maxlen"), deaths, exchange=dlx, key=source)
    assert not sink.arrived
    assert [scene.get(source)[2] for _ in range(2)] == [message.body for message in sent[3:]]


@pytest.mark.parametrize("bound", [{"max_length": 1}, {"max_bytes": 4}], ids=["max-length", "max-length-bytes"])
def test_reject_publish_dlx(scene, bound):
    """The new message dies, and its publisher gets a nack (1.3)."""
    dlx, sink = scene.target()
    source = scene.queue("source", kind="classic", dlx=dlx, overflow="reject-publish-dlx", **bound)
    channel = scene.connection.channel()
    channel.confirm_delivery()
    scene.publish("", source, b"four", channel=channel)
    with pytest.raises(pika.exceptions.NackError):
        scene.publish("", source, b"new!", channel=channel, message_id="the new one")
    got = sink.one()
    assert got[1].message_id == "the new one"
    headers = got[1].headers
    assert [(death["reason"], death["queue"], death["count"]) for death in headers["x-death"]] == [("maxlen", source, 1)]
    assert headers["x-first-death-reason"] == "maxlen"


def test_reject_publish_makes_no_dead_letter(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, overflow="reject-publish", max_length=1)
    channel = scene.connection.channel()
    channel.confirm_delivery()
    refused = 0
    while not refused:  # a quorum queue takes a few more than its bound
        try:
            scene.publish("", source, channel=channel, message_id="not refused")
        except pika.exceptions.NackError:
            refused += 1
    scene.channel.basic_reject(scene.get(source)[0].delivery_tag, requeue=False)
    assert sink.one()[1].headers["x-death"][0]["reason"] == "rejected"


def test_delivery_limit(scene):
    dlx, sink = scene.target()
    source = scene.queue("source", kind="quorum", dlx=dlx, limit=2)
    sent = scene.publish("", source, expiration="600000")
    for _ in range(3):
        scene.channel.basic_reject(scene.get(source)[0].delivery_tag, requeue=True)
    deaths = [Death(source, "delivery_limit", "", [source], expiration="600000")]
    check(sink.one(), sent, scene.by("delivery_limit"), deaths, exchange=dlx, key=source, delivered=True)


def test_delivery_limit_by_closed_channels(scene):
    """A channel that ends returns what it had (9.4), and that counts (1.4)."""
    dlx, sink = scene.target()
    source = scene.queue("source", kind="quorum", dlx=dlx, limit=1)
    sent = scene.publish("", source)
    for _ in range(2):
        channel = scene.connection.channel()
        scene.get(source, channel)
        channel.close()
    deaths = [Death(source, "delivery_limit", "", [source])]
    check(sink.one(), sent, scene.by("delivery_limit"), deaths, exchange=dlx, key=source, delivered=True)


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_at_least_once(scene, reason):
    dlx, sink = scene.target()
    source = scene.source("source", reason, kind="quorum", dlx=dlx, strategy="at-least-once", overflow="reject-publish")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    deaths = [Death(source, reason, "", [source])]
    check(sink.one(), sent, scene.by(reason), deaths, exchange=dlx, key=source, delivered=reason == "rejected")


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_message_with_nothing_set(scene, reason, kind):
    """No properties, no headers, no body."""
    dlx, sink = scene.target()
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    scene.channel.basic_publish("", source, b"")
    scene.kill(source, reason)
    _, properties, body = sink.one()
    assert body == b"" and properties.headers["x-death"][0]["reason"] == reason
    assert all(value is None for name, value in vars(properties).items() if name != "headers")
