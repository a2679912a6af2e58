"""Mode `off`: what is left to the broker is as it is without the proxy, and what was taken over stays so."""

import pika
import pytest

from lab import until
from own import own  # noqa: F401


@pytest.fixture
def impatient(via):
    """What nothing routes is tried again after a second, not after three minutes."""
    name = "dead_letter_worker_publisher_confirm_timeout"
    before = via.broker.eval(f"application:get_env(rabbit, {name}, 180000).")
    before = before.removeprefix("{ok,").removesuffix("}")
    via.broker.eval(f"application:set_env(rabbit, {name}, 1000).")
    yield
    via.broker.eval(f"application:set_env(rabbit, {name}, {before}).")


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_what_nothing_routes_stays_in_its_queue(scene, impatient, reason):
    """A quorum queue with at-least-once: it counts in the length, pushes back on publishers, and goes when a route comes."""
    dlx = scene.exchange("dlx")
    source = scene.queue("source", kind="quorum", dlx=dlx, max_length=3, strategy="at-least-once", overflow="reject-publish")
    sink = scene.queue("sink")
    dies = {"expiration": "1"} if reason == "expired" else {}
    sent = [scene.publish("", source, b"%d" % number, **dies) for number in range(3)]
    if reason == "rejected":
        for _ in range(3):
            scene.channel.basic_reject(scene.get(source)[0].delivery_tag, requeue=False)
    until(lambda: scene.depth(source) == 0, "all have died")
    channel = scene.connection.channel()
    channel.confirm_delivery()
    publish = lambda: channel.basic_publish("", source, b"more", pika.BasicProperties(expiration="1"))

    def is_refused():
        try:
            publish()
        except pika.exceptions.NackError:
            return True

    until(is_refused, "publishers are pushed back", pause=0.2)
    for message in sent:
        scene.assert_not_parked(message)
    scene.bind(sink, dlx)
    until(lambda: scene.depth(sink) >= 3, lambda: f"a route; {scene.depth(sink)} of 3")
    bodies = [scene.get(sink)[2] for _ in range(3)]
    assert bodies == [b"0", b"1", b"2"]
    until(lambda: not is_refused(), "nobody is pushed back any more", pause=0.2)


@pytest.mark.once
@pytest.mark.proxied
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_was_taken_over_stays_so(own, kind):
    """Its redeclare is not refused, and its dead letters are the proxy's."""
    sink = own.queue("sink")
    arguments = dict(x_queue_type=kind, x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
    source = own.queue("source", **arguments)
    own.restart(mode="off")
    own.queue("source", **arguments)
    own.channel.basic_publish("", source, b"1")
    own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    until(lambda: own.depth(sink) == 1, "the dead letter")
    until(lambda: own.metric("dlx_proxy_messages_dead_lettered_total") == 1, "counted, when its confirm has come")
    fresh = own.queue("fresh", **arguments)
    own.channel.basic_publish("", fresh, b"2")
    own.channel.basic_reject(own.get(fresh)[0].delivery_tag, requeue=False)
    until(lambda: own.depth(sink) == 2, "the dead letter of a queue that is the broker's")
    assert own.metric("dlx_proxy_messages_dead_lettered_total") == 1
