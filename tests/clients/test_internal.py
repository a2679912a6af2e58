"""2.4: a broker may dead-letter into an internal exchange; a client, hence the proxy, may not publish there. It goes over a bridge. That nobody
behind the proxy sees it is proven by tests/differential (S2.4); here is what becomes of bridges, and of dead letters that cannot go over one."""

import pika
import pytest

from lab import until
from own import PREFIX, Own

both_paths = pytest.mark.parametrize("reason", ["rejected", "expired"])
"""The two paths of a dead letter: a client's reject, and a death that the broker signals."""


def bridge(exchange, prefix="dlx-proxy"):
    return f"{prefix}.bridge/{exchange}"


@both_paths
@pytest.mark.parametrize("cause", ["unroutable", "no_exchange", "nacked"])
@pytest.mark.once
@pytest.mark.proxied
def test_what_cannot_go_over_one_is_parked(scene, reason, cause):
    """With all that its consumer would have read, and where it should have gone."""
    dlx = scene.exchange("dlx", internal=True)
    source = scene.source("source", reason, dlx=dlx)
    if cause == "no_exchange":
        scene.channel.exchange_delete(dlx)
    if cause == "nacked":
        full = scene.queue("full", max_length=1, overflow="reject-publish")
        scene.bind(full, dlx)
        scene.publish("", full)
        until(lambda: scene.depth(full) == 1, "the queue is full")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    ((_, properties, body),) = scene.parked(sent)
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["exchange"], death["routing-keys"]) == (source, reason, "", [source])
    told = [properties.headers[name] for name in ("x-first-death-queue", "x-parked-exchange", "x-parked-cause")]
    assert (body, told) == (sent.body, [source, dlx, cause])


@pytest.mark.once
@pytest.mark.proxied
def test_its_bridge_goes_with_it_and_comes_back_alone(scene):
    dlx = scene.exchange("dlx", internal=True)
    sink = scene.sink(of=dlx)
    source = scene.queue("source", dlx=dlx)

    def is_there():
        channel = scene.via.direct.channel()
        try:
            channel.exchange_declare(bridge(dlx), passive=True)
            channel.close()
        except pika.exceptions.ChannelClosedByBroker as refusal:
            assert refusal.reply_code == 404
            return False
        return True

    for _ in range(2):
        scene.publish("", source)
        scene.kill(source, "rejected")
        assert sink.one()[0].exchange == dlx
        assert is_there()
        with scene.via.direct.channel() as channel:
            channel.exchange_delete(bridge(dlx))  # by other hands
    scene.publish("", source)
    scene.kill(source, "rejected")
    sink.one()
    scene.channel.exchange_delete(dlx)
    assert not is_there()


@pytest.mark.once
@pytest.mark.proxied
def test_past_the_proxy_the_bridge_is_seen(scene):
    """A stated limit."""
    dlx = scene.exchange("dlx", internal=True)
    sink = scene.queue("sink")
    scene.bind(sink, dlx)
    source = scene.queue("source", dlx=dlx)
    scene.publish("", source)
    scene.kill(source, "rejected")
    with scene.via.direct.channel() as channel:
        assert scene.get(sink, channel)[0].exchange == bridge(dlx)


@pytest.mark.once
@pytest.mark.proxied
def test_clients_cannot_reach_a_bridge(scene):
    dlx = scene.exchange("dlx", internal=True)
    for request in (
        lambda channel: channel.basic_publish(bridge(dlx), "", b""),
        lambda channel: channel.exchange_declare(bridge(dlx), "fanout"),
        lambda channel: channel.exchange_unbind(dlx, bridge(dlx)),
        lambda channel: channel.queue_declare(scene.name("queue"), durable=True, arguments={"x-dead-letter-exchange": bridge(dlx)}),
    ):
        channel = scene.connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
            request(channel)
            channel.queue_declare("", exclusive=True)
        assert refusal.value.reply_code == 403
        assert f"access to exchange '{bridge(dlx)}'" in refusal.value.reply_text


@pytest.fixture
def limited(via, tmp_path):
    limited = Own(via, "classic", tmp_path / "log", user="no-bridges")
    yield limited
    limited.close()


@pytest.mark.once
@pytest.mark.proxied
@both_paths
def test_a_proxy_that_may_not_build_one_parks(limited, scene, reason):
    dlx = scene.exchange("dlx", internal=True)
    sink = scene.sink(of=dlx)
    ttl = {"x_message_ttl": 1} if reason == "expired" else {}
    source = limited.queue("source", x_dead_letter_exchange=dlx, **ttl)
    for body in (b"one", b"two"):
        limited.channel.basic_publish("", source, body)
        if reason == "rejected":
            method, _, _ = until(lambda: next((got for got in [limited.channel.basic_get(source)] if got[0]), None), "the message")
            limited.channel.basic_reject(method.delivery_tag, requeue=False)
        ((method, properties, parked),) = limited.parked(1)
        told = properties.headers["x-parked-exchange"], properties.headers["x-parked-cause"]
        assert (method.exchange, parked, told) == (f"{PREFIX}.parked", body, (dlx, "forbidden"))
    assert not sink.arrived
