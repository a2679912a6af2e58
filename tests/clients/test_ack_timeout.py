"""Ack timeouts: what a client holds for too long is taken back, while its channel and its neighbours live (docs/how-to/ack-timeout.md)."""

import pytest

from lab import until
from scene import policies

TIMEOUT = 1000


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_one_message_is_taken_back_and_its_neighbours_live(scene, kind):
    """A late ack or nack has no effect, also within a `multiple`, and the channel goes on."""
    dead = scene.queue("dead")
    slow = scene.queue("slow", kind=kind, dlx="", dlk=dead, ack_timeout=TIMEOUT)
    other = scene.queue("other", kind=kind)
    late = scene.via.proxy.event("settled_late")
    scene.fill(other, [b"first", b"second"])
    scene.fill(slow, [b"slow", b"too"])
    first, one, second, two = (scene.get(queue).method.delivery_tag for queue in (other, slow, other, slow))
    scene.has(slow, 2)
    assert scene.depth(other) == 0
    scene.channel.basic_reject(one, requeue=False)
    scene.channel.basic_ack(two, multiple=True)
    until(lambda: scene.via.proxy.event("settled_late") == late + 2, "both were late")
    again = [scene.get(slow), scene.get(slow)]
    assert {message.body for message in again} == {b"slow", b"too"} and all(message.method.redelivered for message in again)
    scene.channel.basic_ack(again[-1].method.delivery_tag, multiple=True)
    assert scene.channel.queue_declare(dead, passive=True).method.message_count == 0, "the channel lives, and nothing died"
    assert (first, second) < (second, again[0].method.delivery_tag)
    scene.channel.close()
    assert [scene.depth(queue) for queue in (slow, other)] == [0, 0], "all of it is acked"


def test_a_verdict_gives_more_time(scene):
    """To its own delivery alone, however long its neighbour is held."""
    slow = scene.queue("slow", dlx="", ack_timeout=TIMEOUT)
    late = scene.via.proxy.event("settled_late")
    scene.fill(slow, [b"long", b"short"])
    long, short = (scene.get(slow).method.delivery_tag for _ in range(2))
    scene.channel.queue_unbind(slow, "dlx-proxy.verdict", str(long), {"extend-ms": 600_000})
    scene.has(slow, 1)
    again = scene.get(slow)
    assert (again.body, again.method.redelivered) == (b"short", True)
    scene.channel.basic_ack(again.method.delivery_tag, multiple=True)
    until(lambda: scene.via.proxy.event("settled_late") == late + 1, "the first delivery of the short one was late")
    scene.channel.close()
    assert scene.depth(slow) == 0 and short > long, "the long one is acked"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_at_the_limit_it_dies(scene, kind):
    """On a quorum queue the broker counts; elsewhere the dead letter says why, too."""
    dead = scene.queue("dead")
    slow = scene.queue("slow", kind=kind, dlx="", dlk=dead, limit=1, ack_timeout=TIMEOUT)
    scene.publish("", slow, b"poison")
    tags = [scene.get(slow).method.delivery_tag for _ in range(2)]
    (_, properties, body), = scene.all_of(dead, 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"poison", "delivery_limit")
    assert properties.headers.get("x-exception-message") == ("ack timeout of 1s" if kind == "classic" else None)
    for tag in tags:
        scene.channel.basic_nack(tag)
    scene.channel.close()
    assert scene.depth(slow) == 0


def test_a_consumer_goes_on_and_a_killed_proxy_loses_nothing(own, tmp_path):
    """By a policy with a delay. The proxy is killed when it takes messages back."""
    definition = {"ack-timeout": "1s", "delayed-retry-min": 1000}
    own.restart(config=policies(tmp_path / "dlx-proxy.toml", own.via.vhost, slow=("^own-slow", definition)))
    slow = own.queue("slow")
    bodies = {b"%d" % number for number in range(20)}
    own.fill(slow, bodies)
    got = []
    own.channel.basic_consume(slow, lambda channel, method, properties, body: got.append(body))
    own.connection.process_data_events(0)
    until(lambda: own.connection.process_data_events(0.05) or len(got) >= 20, "all are delivered")
    until(lambda: own.proxy.metric("dlx_proxy_ack_timeouts_total") > 0, "they are taken back")
    own.proxy.kill()
    own.restart(config=tmp_path / "dlx-proxy.toml")
    until(lambda: own.depth(slow) >= 20, lambda: f"{own.depth(slow)} of 20", progress=lambda: own.depth(slow))
    assert {body for _, _, body in own.all_of(slow, 20)} == bodies
