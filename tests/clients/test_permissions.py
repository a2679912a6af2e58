"""What a declare that is taken over may and may not do: no dead letter reaches an exchange that its user may not write to, no exchange is missing, and
limits on connections, queues and channels hold. (What users may and may not do otherwise: tests/differential/scenarios/permissions.txt.)"""

import contextlib

import pika
import pytest

from lab import until
from scene import PREFIX, user

NO_SECRET = "^(own|(?!.*secret))"


def declare(own, label, name, channels=None, **short):
    """On a connection of its own: what the client hears. With one channel, which is the client's, no declare of it can be examined."""
    connection = own.via.connect(user=name, **{"channel_max": channels} if channels else {})
    try:
        own.queue(label, channel=connection.channel(), **short)
        return "ok"
    except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as refusal:
        return refusal.reply_code, refusal.reply_text
    finally:
        if connection.is_open:
            connection.close()


def fallbacks(own, cause):
    """Declares that the proxy left to the broker for this cause."""
    return own.proxy.metric("dlx_proxy_fallbacks_total", request="declare", cause=cause)


def is_native(own, label, **short):
    """It has the client's own arguments."""
    own.made(label, **short)


def intakes(own):
    return [name for name in own.via.broker.exchanges(own.via.vhost) if name.startswith(f"{PREFIX}/")]


def test_no_right_on_the_intake_exchanges(own):
    """The queues stay native, the dead letters come, and an operator reads of it once, however many queues there are."""
    dlx, sink = own.exchange("dlx"), own.queue("sink")
    own.bind(sink, dlx)
    with user(own.via, "not-ours", write=f"^(?!{PREFIX}/)") as not_ours, own.via.connect(user=not_ours) as connection:
        channel = connection.channel()
        for number in range(3):
            queue = own.queue(f"source{number}", channel=channel, dlx=dlx)
            is_native(own, f"source{number}", dlx=dlx)
            own.publish("", queue, channel=channel)
            own.reject(queue, channel=channel)
            assert own.get(sink).properties.headers["x-death"][0]["queue"] == queue
        assert fallbacks(own, "no_permission") == 3
        assert own.proxy.text().count("its user may not write to the intake exchange") == 1


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_name_that_was_taken_over_gives_no_permission(own, kind):
    """The queue is gone, which the proxy has not heard; its name is declared by one who may not write to its exchange. Behind a refusal nothing is left."""
    with user(own.via, "no-secret", write=NO_SECRET) as no_secret:
        own.queue("queue", kind=kind, dlx="secret")
        own.delete("own-queue")
        code, text = declare(own, "queue", no_secret, 1, kind=kind, dlx="secret")
        assert code == 404 and text.startswith("NOT_FOUND - no queue")
        for channels in (1, None):
            code, text = declare(own, "queue", no_secret, channels, kind=kind, dlx="secret")
            assert code == 403 and "access to exchange 'secret'" in text
        assert "own-queue" not in own.via.broker.queues(own.via.vhost)
        before = intakes(own)
        assert declare(own, "fresh", no_secret, dlx="another-secret")[0] == 403
        assert declare(own, "bad", None, dlx="bad", max_length=-1)[0] == 406
        assert intakes(own) == before
        # What one connection was permitted counts for no other.
        own.via.broker.permit(own.via.vhost, no_secret, ".*", ".*", ".*")
        assert declare(own, "permitted", no_secret, kind=kind, dlx="secret") == "ok"
        own.via.broker.permit(own.via.vhost, no_secret, ".*", NO_SECRET, ".*")
        assert declare(own, "refused", no_secret, kind=kind, dlx="secret")[0] == 403


def test_in_doubt_the_intake_exchange_is_there_before_the_queue_or_the_queue_is_native(own):
    dlx, sink = own.exchange("dlx"), own.queue("sink")
    own.bind(sink, dlx)

    def dies():
        own.publish("", "own-queue")
        assert own.get(sink).properties.headers["x-death"][0]["queue"] == "own-queue"

    own.queue("queue", ttl=1, dlx=dlx)
    (intake,) = intakes(own)
    own.restart()
    # One refused declare tells a proxy that has not seen it what the queue is; the next one finds it, and the exchange is made again.
    assert declare(own, "queue", None, 1, ttl=1, dlx=dlx)[0] == 406
    own.delete(exchanges=[intake])
    assert declare(own, "queue", None, 1, ttl=1, dlx=dlx) == "ok" and intakes(own) == [intake]
    dies()
    # Both are gone: nothing is declared with an exchange that nobody has made.
    own.delete("own-queue", exchanges=[intake])
    assert declare(own, "queue", None, 1, ttl=1, dlx=dlx)[0] == 404
    assert declare(own, "queue", None, 1, ttl=1, dlx=dlx) == "ok"
    is_native(own, "queue", ttl=1, dlx=dlx)
    dies()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_made_anew_elsewhere_before_its_consumer_begins_has_its_new_target(own, kind):
    old, new = own.queue("old"), own.queue("new")
    queue = own.queue("queue", kind=kind, dlx="", dlk=old)
    own.delete(queue)
    own.made("queue", kind=kind, dlx="", dlk=new)
    for count in (1, 2):
        own.publish("", queue)
        own.channel.basic_reject(next(own.channel.consume(queue))[0].delivery_tag, requeue=False)
        own.has(new, count)
    assert own.depth(old) == 0


def test_one_user_has_half_of_the_intake_exchanges(own):
    own.restart(max_intake_exchanges=4)
    with user(own.via, "first") as first, user(own.via, "second") as second:
        for name, labels in ((first, "abc"), (second, "de")):
            for label in labels:
                assert declare(own, label, name, dlx=f"own-dlx-{label}") == "ok"
    assert (len(intakes(own)), fallbacks(own, "no_intake")) == (4, 1)
    is_native(own, "c", dlx="own-dlx-c")


# --- Limits ----------------------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def limit(via, place, **limits):
    """Of `user NAME` or `vhost -p NAME`."""
    what, *name = place.split()
    words = "{" + ", ".join(f'"{key.replace("_", "-")}": {value}' for key, value in limits.items()) + "}"
    via.broker.ctl("-q", f"set_{what}_limits", *name, words)
    try:
        yield
    finally:
        via.broker.ctl("-q", f"clear_{what}_limits", *name, *(key.replace("_", "-") for key in limits if what == "user"))


def one_too_many(own):
    """What is said to it. The broker counts connections with a delay: those before it are tried again."""
    with contextlib.ExitStack() as kept:
        def refused():
            try:
                kept.enter_context(own.via.connect())
            except pika.exceptions.AMQPConnectionError as refusal:
                return repr(refusal)

        return until(refused, "a limit", pause=0.3)


def test_connections_and_queues_of_a_vhost(own):
    """What the proxy has there of its own counts too; the words are the broker's."""
    vhost = "clients-limits"
    broker = own.via.broker
    broker.make([vhost], [], [(broker.user, vhost, ".*", ".*", ".*")])
    try:
        own.via.vhost, usual = vhost, own.via.vhost
        own.restart()
        own.queue("first", dlx="")
        until(lambda: len(broker.queues(vhost)) == 4, "its own queues")
        with limit(own.via, f"vhost -p {vhost}", max_connections=4, max_queues=4):
            assert "connection limit (4)" in one_too_many(own)
            own.queue("first", dlx="")
            for dlx in ("", None):
                with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
                    own.queue("second", dlx=dlx)
                assert refusal.value.reply_code == 406 and "queue limit" in refusal.value.reply_text, refusal.value
        own.stop()
    finally:
        own.via.vhost = usual
        broker.unmake([vhost], [])
        own.start()


def test_a_probe_costs_a_user_with_a_limit_on_channels_one_connection(own):
    """A queue that was taken over is declared so by a user who is not probed, too."""
    with user(own.via, "one-channel") as one, limit(own.via, f"user {one}", max_channels=1):
        code, text = declare(own, "queue", one, dlx="")
        assert code == 530 and "number of channels opened for user" in text
        for label in ("queue", "another"):
            until(lambda: declare(own, label, one, dlx="") == "ok", "a channel", pause=0.2)
            is_native(own, label, dlx="")
        assert own.proxy.event("probe_over_limit") == 1 and fallbacks(own, "channel_limit") >= 2
        assert own.proxy.text().count("a probe of the proxy met a limit on channels") == 1
        own.queue("taken", dlx="the-dlx")
        until(lambda: declare(own, "taken", one, dlx="the-dlx") == "ok", "the same declare", pause=0.2)
        until(lambda: "received 'another-dlx' but current is 'the-dlx'" in str(declare(own, "taken", one, dlx="another-dlx")), "another one is refused", pause=0.2)
