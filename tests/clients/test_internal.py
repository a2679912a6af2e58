"""2.4: a broker may dead-letter into an internal exchange; a client, hence the proxy, may not publish there. It goes over a bridge."""

import pika
import pytest

from expect import Death, check, expect_parked, rules
from lab import until
from own import PREFIX, Own

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])
both_paths = pytest.mark.parametrize("reason", ["rejected", "expired"])
"""The two paths of a dead letter: a client's reject, and a death that the broker signals."""


def bridge(exchange, prefix="dlx-proxy"):
    return f"{prefix}.bridge/{exchange}"


def check_death(scene, got, sent, source, reason, *, exchange, key, **more):
    check(got, sent, scene.by(reason), [Death(source, reason, "", [source])], exchange=exchange, key=key, delivered=reason == "rejected", **more)


@both_kinds
@both_paths
@pytest.mark.parametrize("type, key, binding, arguments", [
    ("fanout", None, "", None),
    ("direct", "the key", "the key", None),
    ("topic", "dead.order.7", "dead.#", None),
    ("headers", None, "", {"x-match": "all", "colour": "red"}),
])
def test_of_each_type(scene, kind, reason, type, key, binding, arguments):
    dlx = scene.exchange("dlx", type, internal=True)
    sink = scene.sink(of=dlx, key=binding, args=arguments)
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk=key)
    for number in range(3):
        sent = scene.publish("", source, headers={"colour": "red", "number": number})
        scene.kill(source, reason)
        check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=key or source)


@both_kinds
@both_paths
def test_fetched(scene, kind, reason):
    dlx = scene.exchange("dlx", internal=True)
    sink = scene.queue("sink", kind=kind)
    scene.bind(sink, dlx)
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    scene.publish("", source)
    scene.kill(source, reason)
    method, properties, _ = scene.get(sink)
    assert (method.exchange, method.routing_key, method.message_count) == (dlx, source, 0)
    assert properties.headers["x-death"][0]["exchange"] == ""


@both_kinds
@both_paths
def test_cc_counts_without_a_key(scene, kind, reason):
    """2.2, 2.6."""
    dlx = scene.exchange("dlx", "direct", internal=True)
    sinks = [scene.sink(f"sink.{key}", of=dlx, key=key) for key in ("one", "two")]
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source, headers={"CC": ["one", "two"]})
    scene.kill(source, reason)
    deaths = [Death(source, reason, "", [source, "one", "two"])]
    for sink in sinks:
        check(sink.one(), sent, scene.by(reason), deaths, exchange=dlx, key=source, delivered=reason == "rejected")


@both_kinds
@both_paths
def test_nothing_bound_for_it(scene, kind, reason):
    dlx = scene.exchange("dlx", "direct", internal=True)
    sink = scene.sink(of=dlx, key="another")
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    if scene.by(reason).parks:
        expect_parked(scene, sent, reason, [Death(source, reason, "", [source])], exchange=dlx, cause="unroutable")
    else:
        scene.fence(kind, reason)
    assert not sink.arrived


@both_kinds
@both_paths
def test_alternate_exchange(scene, kind, reason):
    """2.3."""
    alternate = scene.exchange("alternate")
    dlx = scene.exchange("dlx", "direct", internal=True, alternate_exchange=alternate)
    sink = scene.sink(of=alternate)
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=source)


@both_kinds
@both_paths
def test_deleted_and_made_anew(scene, kind, reason):
    dlx = scene.exchange("dlx", internal=True)
    sink = scene.sink(of=dlx)
    source = scene.source("source", reason, kind=kind, dlx=dlx)

    def one_more():
        sent = scene.publish("", source)
        scene.kill(source, reason)
        check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=source)

    one_more()
    scene.channel.exchange_delete(dlx)
    lost = scene.publish("", source)
    scene.kill(source, reason)
    if scene.by(reason).parks:
        expect_parked(scene, lost, reason, [Death(source, reason, "", [source])], exchange=dlx, cause="no_exchange")
    else:
        scene.fence(kind, reason)
    # Internal again, another at once, and at last one for everybody.
    for internal in (True, True, False):
        scene.channel.exchange_delete(dlx)
        scene.exchange("dlx", internal=internal)
        scene.bind(sink.queue, dlx)
        one_more()
    assert not sink.arrived


@both_kinds
@both_paths
def test_what_dies_again_tells_the_internal_exchange(scene, kind, reason):
    """4.1, 5.1, 5.2: by a native death, then by one of a queue that the proxy manages."""
    dlx = scene.exchange("dlx", internal=True)
    onward, last_x = scene.exchange("onward"), scene.exchange("last-x")
    native = scene.queue("native", channel=scene.via.direct.channel(), kind=kind, ttl=1, dlx=onward)
    scene.bind(native, dlx)
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    early = scene.sink("early", of=onward)
    last = scene.source("last", reason, kind=kind, dlx=last_x)
    scene.bind(last, onward)
    sink = scene.sink(of=last_x)
    sent = scene.publish("", source)
    scene.kill(source, reason)

    first = Death(source, reason, "", [source])
    deaths = [Death(native, "expired", dlx, [source]), first]
    by = rules(scene.via, "broker")
    check(early.one(), sent, by, deaths, first=first, exchange=onward, key=source)
    scene.kill(last, reason)
    deaths = [Death(last, reason, onward, [source])] + (deaths[::-1] if by.older_entries_are_reversed else deaths)
    check(sink.one(), sent, scene.by(reason), deaths, first=first, exchange=last_x, key=source, delivered=reason == "rejected")


@both_kinds
def test_retry_loop(scene, kind):
    """6.2: work -> (rejected) -> wait -> (expired) -> work, and both ways are internal."""
    work_x, wait_x = (scene.exchange(name, "direct", internal=True) for name in ("work-x", "wait-x"))
    work = scene.queue("work", kind=kind, dlx=wait_x, dlk="job")
    wait = scene.queue("wait", kind=kind, dlx=work_x, dlk="job", ttl=20)
    scene.bind(work, work_x, "job")
    scene.bind(wait, wait_x, "job")
    scene.publish("", work)
    got = scene.get(work)
    for lap in range(1, 6):
        scene.channel.basic_reject(got[0].delivery_tag, requeue=False)
        got = scene.get(work)
        assert (got[0].exchange, got[0].routing_key) == (work_x, "job")
        told = [(e["queue"], e["reason"], e["exchange"], e["routing-keys"], e["count"]) for e in got[1].headers["x-death"]]
        assert told == [(wait, "expired", wait_x, ["job"], lap), (work, "rejected", "", [work], lap)]


@both_kinds
@pytest.mark.proxied
def test_a_full_queue_behind_it(scene, kind):
    """Retried, with what the broker can confirm then; else parked."""
    dlx = scene.exchange("dlx", internal=True)
    full = scene.queue("full", max_length=1, overflow="reject-publish")
    scene.bind(full, dlx)
    source = scene.queue("source", kind=kind, dlx=dlx)
    scene.publish("", full)
    until(lambda: scene.depth(full) == 1, "the queue is full")
    sent = scene.publish("", source)
    scene.kill(source, "rejected")
    expect_parked(scene, sent, "rejected", [Death(source, "rejected", "", [source])], exchange=dlx, cause="nacked")


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
        lambda channel: channel.queue_declare(scene.name("queue"), arguments={"x-dead-letter-exchange": bridge(dlx)}),
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
