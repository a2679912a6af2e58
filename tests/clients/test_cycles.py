"""6: what goes round. The proxy does not know the queues behind a named exchange: there a cycle may end one lap later than natively, and what
everybody else sees of it is the same. What the broker lets go round goes round."""

import pytest

TTL = 50
"""Of each queue in a circle, in milliseconds; a lap is no shorter than this."""

LAPS = 4
"""That is how long a test watches: a cycle that is not ended shows in the second lap."""


def pass_time(scene, milliseconds):
    """Wait until the broker has let messages expire for so long, one queue after the other."""
    sink = scene.sink("clock.sink")
    steps = range(milliseconds // TTL)
    names = [scene.name(f"clock{number}") for number in steps] + [sink.queue]
    for number in steps:
        scene.queue(f"clock{number}", dlx="", dlk=names[number + 1], ttl=TTL)
    scene.publish("", names[0])
    sink.one()


def assert_ended(scene, queues, sinks, sent, unseen=True):
    """Each sink beside the circle has had the message once, and it is nowhere now. 3.x does not tell how it came into a queue where it died before,
    so there the proxy parks what seems to have gone round `unseen` by the broker."""
    pass_time(scene, LAPS * len(queues) * TTL)
    for sink in sinks:
        sink.one()
    assert [scene.depth(queue) for queue in queues] == [0] * len(queues)
    if unseen and in_doubt(scene.via):
        assert len(scene.parked(sent)) == 1
    else:
        scene.assert_not_parked(sent)


def in_doubt(via):
    return via.mode == "full" and not via.broker.is_4x


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_that_its_dlx_leads_back_to(scene, kind):
    """6.1, 6.4: TTL, a fanout DLX, and a binding back."""
    dlx, sink = scene.target()
    queue = scene.queue("queue", kind=kind, dlx=dlx, ttl=TTL)
    scene.bind(queue, dlx)
    sent = scene.publish("", queue)
    assert_ended(scene, [queue], [sink], sent)


@pytest.mark.parametrize("entrance", ["default exchange", "the circle's own"])
def test_two_queues_by_named_exchanges(scene, entrance):
    """6.1, 6.4: a -> b -> a. By the circle's own exchange the message comes in as its dead letters do."""
    exchange = scene.exchange("exchange", "direct")
    a, b = scene.name("a"), scene.name("b")
    scene.queue("a", dlx=exchange, dlk="to b", ttl=TTL)
    scene.queue("b", dlx=exchange, dlk="to a", ttl=TTL)
    scene.bind(a, exchange, "to a")
    scene.bind(b, exchange, "to b")
    sinks = [scene.sink(f"sink{number}", of=exchange, key=key) for number, key in enumerate(["to a", "to b"])]
    if entrance == "default exchange":
        sent = scene.publish("", a)
    else:
        sent = scene.publish(exchange, "to a")
        sinks[0].one()
    assert_ended(scene, [a, b], sinks, sent)


def test_a_circle_that_is_half_native(scene):
    """6.1, 6.4: one of its queues was declared past the proxy; 4.x forgets what died before it."""
    ours, theirs = scene.exchange("to-native"), scene.exchange("to-managed")
    managed = scene.queue("managed", dlx=ours, ttl=TTL)
    outside = scene.via.direct.channel()
    native = scene.queue("native", channel=outside, dlx=theirs, ttl=TTL)
    outside.close()
    scene.bind(native, ours)
    scene.bind(managed, theirs)
    sinks = [scene.sink("sink1", of=ours), scene.sink("sink2", of=theirs)]
    sent = scene.publish("", managed)
    assert_ended(scene, [managed, native], sinks, sent, unseen=False)


@pytest.mark.proxied
@pytest.mark.takeover
def test_an_at_least_once_queue_parks(scene):
    """6.3: it would keep what goes round; the proxy puts it aside."""
    dlx, sink = scene.target()
    queue = scene.queue("at-least-once", kind="quorum", dlx=dlx, ttl=TTL, strategy="at-least-once", overflow="reject-publish")
    scene.bind(queue, dlx)
    sent = scene.publish("", queue)
    assert len(scene.parked(sent)) == 1
    sink.one()
    assert scene.depth(queue) == 0


@pytest.mark.parametrize("past_the_proxy", [False, True])
def test_a_client_that_retries_by_hand(scene, past_the_proxy):
    """6.4: it takes the dead letter and publishes it into the same queue again, with all its headers: as often as it likes."""
    dlx = scene.exchange("dlx")
    queue, dead = scene.queue("queue", dlx=dlx, dlk="dead", ttl=20), scene.queue("dead")
    scene.bind(dead, dlx)
    channel = scene.via.direct.channel() if past_the_proxy else scene.channel
    sent = scene.publish("", queue)
    for _ in range(5):
        got = scene.get(dead, channel)
        assert got[1].message_id == sent.id
        channel.basic_publish("", queue, got[2], got[1])
        channel.basic_ack(got[0].delivery_tag)
    scene.get(dead, channel)
    if past_the_proxy:
        channel.close()


def test_what_is_moved_back_past_the_proxy_with_its_key(scene):
    """6.4: by another exchange, with all its headers, as a shovel does: it dies as before. In doubt it is parked, never dropped."""
    dlx = scene.exchange("dlx")
    queue, dead = scene.queue("queue", dlx=dlx, ttl=20), scene.queue("dead")
    scene.bind(dead, dlx)
    channel = scene.via.direct.channel()
    sent = scene.publish("", queue)
    got = scene.get(dead, channel)
    channel.basic_publish("", queue, got[2], got[1])
    channel.basic_ack(got[0].delivery_tag)
    if in_doubt(scene.via):
        assert len(scene.parked(sent)) == 1
    else:
        assert scene.get(dead, channel)[1].message_id == sent.id
    channel.close()
