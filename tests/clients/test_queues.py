"""7, design "How a queue comes under the proxy": queues of every manner, and who declared them."""

import pika
import pytest

from expect import Death, check, rules
from lab import until
from raw import CHANNEL_CLOSE, CHANNEL_CLOSE_OK, DECLARE_OK, Raw, declare, method
from scene import Sink, arguments

reasons = pytest.mark.parametrize("reason", ["rejected", "expired"])


def check_death(scene, got, sent, source, reason, dlx, *, by=None):
    deaths = [Death(source, reason, "", [source])]
    check(got, sent, by or scene.by(reason), deaths, exchange=dlx, key=source, delivered=reason == "rejected")


# --- Manners of a queue ----------------------------------------------------------------------------------------------


@reasons
@pytest.mark.parametrize("manner", [dict(durable=False), dict(exclusive=True), dict(auto_delete=True)], ids=lambda manner: next(iter(manner)))
def test_manners(scene, reason, manner):
    dlx, sink = scene.target()
    source = scene.source("source", reason, dlx=dlx, **manner)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, dlx)
    if manner.get("exclusive"):
        scene.channel.queue_delete(source)


@reasons
def test_server_named(scene, reason):
    """7.7: the name is the broker's, also in x-death; and "" means that queue on its channel."""
    dlx, sink = scene.target()
    words = arguments(dlx=dlx, ttl=1 if reason == "expired" else None)
    source = scene.channel.queue_declare("", exclusive=True, arguments=words).method.queue
    assert source.startswith("amq.gen-")
    scene.channel.queue_bind("", sink_exchange := scene.exchange("entry"))
    sent = scene.publish(sink_exchange, "a key")
    if reason == "rejected":
        got = until(lambda: next((got for got in [scene.channel.basic_get("")] if got[0]), None), "the message")
        scene.channel.basic_reject(got[0].delivery_tag, requeue=False)
    deaths = [Death(source, reason, sink_exchange, ["a key"])]
    check(sink.one(), sent, scene.by(reason), deaths, exchange=dlx, key="a key", delivered=reason == "rejected")
    scene.channel.queue_delete("")


def test_auto_delete_goes_with_its_last_consumer(scene):
    dlx, _ = scene.target()
    source = scene.queue("source", dlx=dlx, auto_delete=True)
    channel = scene.connection.channel()
    channel.basic_cancel(channel.basic_consume(source, lambda *_: None))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        while True:
            scene.connection.channel().queue_declare(source, passive=True)


def test_exclusive_goes_with_its_connection(scene):
    dlx, sink = scene.target()
    connection = scene.via.connect()
    source = scene.queue("source", channel=connection.channel(), dlx=dlx, exclusive=True)
    sent = scene.publish("", source, channel=connection.channel())
    connection.close()

    def gone():
        try:
            scene.connection.channel().queue_declare(source, passive=True)
        except pika.exceptions.ChannelClosedByBroker as refusal:
            return refusal.reply_code == 404

    until(gone, f"{source} gone")
    assert not sink.arrived
    scene.assert_not_parked(sent)


@reasons
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_declared_without_waiting(scene, reason, kind):
    """nowait: no answer, the same queue; what follows on the channel comes after it."""
    dlx, sink = scene.target()
    source = scene.name("source")
    scene.queues.append(source)
    fields = [("x-queue-type", b"S", kind), ("x-dead-letter-exchange", b"S", dlx)] + [("x-message-ttl", b"I", 1)] * (reason == "expired")
    with Raw(scene.via) as raw:
        raw.open_channel()
        raw.send(declare(1, source, durable=True, nowait=True, fields=fields), declare(1, source, passive=True))
        raw.expect(DECLARE_OK)
    scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, dlx)


@pytest.mark.parametrize("fields", [
    [("x-dead-letter-exchange", b"S", "other")], [("x-dead-letter-exchange", b"I", 7)], [("x-dead-letter-routing-key", b"S", "key")], [],
], ids=["other DLX", "number", "key alone", "none"])
def test_refused_without_waiting(scene, fields):
    """nowait asks for no answer, but a refusal closes the channel all the same: with the broker's own words."""
    dlx, _ = scene.target()
    source = scene.queue("source", dlx=dlx)
    outside = scene.name("outside")
    channel = scene.via.direct.channel()
    channel.queue_declare(outside, durable=True, arguments=arguments(dlx=dlx))
    scene.queues.append(outside)
    refusals = []
    for queue, direct in ((source, False), (outside, True)):
        with Raw(scene.via, direct=direct) as raw:
            raw.open_channel()
            raw.send(declare(1, queue, durable=True, nowait=True, fields=fields))
            code, text, *where = raw.expect(CHANNEL_CLOSE).refusal
            raw.send(method(1, CHANNEL_CLOSE_OK))
            raw.open_channel()
            refusals.append((code, text.replace(queue, "QUEUE"), where))
    channel.close()
    assert refusals[0] == refusals[1]


# --- Who declared it -------------------------------------------------------------------------------------------------


@reasons
def test_a_consumer_that_did_not_declare(scene, reason):
    """Its session does not know the target: the reject is forwarded, and the dead letter is right by any way."""
    dlx, sink = scene.target()
    source = scene.source("source", reason, dlx=dlx)
    other = scene.via.connect()
    sent = scene.publish("", source)
    if reason == "rejected":
        channel = other.channel()
        channel.basic_reject(scene.get(source, channel)[0].delivery_tag, requeue=False)
    by = rules(scene.via, "proxy" if scene.via.mode == "takeover" else "broker")
    check_death(scene, sink.one(), sent, source, reason, dlx, by=by)
    other.close()


@reasons
@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("declares", [True, False], ids=["declared again", "only consumed"])
def test_a_queue_from_before_the_proxy(scene, reason, kind, declares):
    """It keeps its native arguments: declares, consumes, rejects and dies as before."""
    dlx, sink = scene.target()
    outside = scene.via.direct.channel()
    source = scene.source("source", reason, kind=kind, dlx=dlx, channel=outside)
    if declares:
        assert scene.source("source", reason, kind=kind, dlx=dlx) == source
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"received 'other' but current is '{dlx}'"):
            scene.source("source", reason, kind=kind, dlx="other", channel=scene.connection.channel())
    sent = scene.publish("", source)
    scene.kill(source, reason)
    managed = declares and reason == "rejected" and not scene.via.is_direct
    check_death(scene, sink.one(), sent, source, reason, dlx, by=rules(scene.via, "proxy" if managed else "broker"))
    scene.source("source", reason, kind=kind, dlx=dlx, channel=outside)
    outside.close()


@reasons
def test_a_target_by_a_policy_of_the_broker(scene, reason):
    """The proxy cannot see it; the queue stays native."""
    dlx, sink = scene.target()
    via, source = scene.via, scene.source("source", reason)
    via.broker.ctl("-q", "set_policy", "-p", via.vhost, "--apply-to", "queues", "dlx", f"^{source}$", f'{{"dead-letter-exchange":"{dlx}"}}')
    sent = scene.publish("", source)
    if reason == "rejected":
        scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, dlx, by=rules(via, "broker"))
    via.broker.ctl("-q", "clear_policy", "-p", via.vhost, "dlx")


@reasons
def test_a_user_without_rights_on_intake_exchanges(scene, reason):
    """Its queues stay native."""
    dlx, sink = scene.target()
    own = scene.via.connect(user="no-intake")
    channel = own.channel()
    source = scene.source("source", reason, dlx=dlx, channel=channel)
    sent = scene.publish("", source)
    if reason == "rejected":
        channel.basic_reject(scene.get(source, channel)[0].delivery_tag, requeue=False)
    check_death(scene, sink.one(), sent, source, reason, dlx, by=rules(scene.via, "broker"))
    own.close()


@reasons
def test_a_vhost_where_the_proxy_has_no_rights(scene, reason):
    """It stays native, and works."""
    connection = scene.via.connect(vhost=scene.via.foreign, user="stranger")
    channel = connection.channel()
    dlx, source, sink = (scene.name(label) for label in ("dlx", "source", "sink"))
    channel.exchange_declare(dlx, "fanout", auto_delete=True)
    channel.queue_declare(sink, auto_delete=True)
    channel.queue_bind(sink, dlx)
    channel.queue_declare(source, auto_delete=True, arguments=arguments(dlx=dlx, ttl=1 if reason == "expired" else None))
    sent = scene.publish("", source, channel=channel, user_id="stranger")
    if reason == "rejected":
        channel.basic_reject(scene.get(source, channel)[0].delivery_tag, requeue=False)
    check_death(scene, Sink(connection, sink).one(), sent, source, reason, dlx, by=rules(scene.via, "broker"))
    channel.queue_delete(source)
    connection.close()


@reasons
def test_the_user_id_of_somebody_else(scene, reason):
    """8.1: the proxy's own user may not publish it; a client of the proxy sees it all the same."""
    dlx, sink = scene.target()
    own = scene.via.connect(user="all-rights")
    channel = own.channel()
    source = scene.source("source", reason, dlx=dlx)
    for _ in range(3):  # the vhost is marked at the first one
        sent = scene.publish("", source, channel=channel, user_id="all-rights")
        scene.kill(source, reason)
        got = sink.one()
        assert got[1].user_id == "all-rights" and "x-dlx-proxy-user-id" not in got[1].headers
        assert got[2] == sent.body and got[1].headers["x-death"][0]["reason"] == reason
    own.close()
