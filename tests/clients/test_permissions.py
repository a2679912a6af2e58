"""Names that are for nobody, and limits on connections, queues and channels. (What users may and may not do is in
tests/differential/scenarios/permissions.txt; here is what is a matter of time, of the proxy's own, or seen in its log.)"""

import contextlib
import re

import pika
import pytest

from lab import Proxy, Via, until
from scene import arguments
from sides import Side, sides  # noqa: F401

ALL, NOT_OURS = ".*", "^(?!dlx-proxy)"
USERS = {  # configure, write, read
    "p-all": (ALL, ALL, ALL), "p-not-ours": (NOT_OURS, NOT_OURS, NOT_OURS), "p-one-connection": (ALL, ALL, ALL),
    "p-one-channel": (ALL, ALL, ALL), "p-few-channels": (ALL, ALL, ALL),
}


@pytest.fixture(scope="module", autouse=True)
def users(via):
    rights = [(user, vhost, *USERS[user]) for user in USERS for vhost in (via.vhost, via.judge)]
    via.broker.make([], [(user, "secret") for user in USERS], rights)
    yield
    via.broker.unmake([], USERS)


@contextlib.contextmanager
def user_limit(via, user, limit, number):
    via.broker.ctl("-q", "set_user_limits", user, f'{{"{limit}": {number}}}')
    try:
        yield
    finally:
        via.broker.ctl("-q", "clear_user_limits", user, limit)


def metric(via, series):
    values = [line.split()[-1] for line in via.proxy.get("/metrics")[1].splitlines() if line.startswith(f"{series} ")]
    return int(values[0]) if values else 0


def left(via, cause):
    """Declares that the proxy left to the broker for this cause."""
    return metric(via, f'dlx_proxy_fallbacks_total{{request="declare",cause="{cause}"}}')


@pytest.mark.takeover
@pytest.mark.proxied
def test_no_right_on_the_intake_exchanges(scene, via):
    """The queues stay native, the dead letters come, and an operator reads of it once, however many queues there are."""
    connection = via.connect(user="p-not-ours")
    channel = connection.channel()
    dlx, sink = scene.target()
    before = left(via, "no_permission")
    said = "its user may not write to the intake exchange"
    for number in range(3):
        queue = scene.queue(f"source{number}", channel=channel, dlx=dlx)
        with via.direct.channel() as direct:
            direct.queue_declare(queue, durable=True, arguments=arguments(dlx=dlx))  # it has the client's own arguments
        scene.publish("", queue, channel=channel, user_id=None)
        channel.basic_reject(scene.get(queue, channel)[0].delivery_tag, requeue=False)
        assert sink.take()[0][1].headers["x-death"][0]["queue"] == queue
    assert left(via, "no_permission") == before + 3
    assert sum(said in line and "user=p-not-ours" in line for line in via.proxy.text().splitlines()) == 1  # other tests have other users
    connection.close()


# --- The proxy's own names -----------------------------------------------------------------------------------------------------------------

def published(channel, exchange, body):
    """A publish has no answer: that it was refused is known by the next request."""
    channel.basic_publish(exchange, "", body)
    channel.basic_qos()


INTAKE, PARKED, ONE = "dlx-proxy.intake", "dlx-proxy.parked", "dlx-proxy/mine"
OWN = {
    "declare the intake queue": lambda channel: channel.queue_declare(INTAKE, durable=True),
    "declare the parking exchange": lambda channel: channel.exchange_declare(PARKED, "fanout"),
    "declare an intake exchange": lambda channel: channel.exchange_declare(ONE, "fanout"),
    "declare one for at-least-once": lambda channel: channel.exchange_declare("dlx-proxy+/mine/key", "fanout"),
    "declare the exchange of policies": lambda channel: channel.exchange_declare("dlx-proxy", "fanout"),
    "name it as an alternate": lambda channel: channel.exchange_declare("a-new-exchange", "fanout", arguments={"alternate-exchange": PARKED}),
    "name it as a dead-letter exchange": lambda channel: channel.queue_declare("a-new-queue", durable=True, arguments=arguments(dlx=ONE)),
    "delete the intake queue": lambda channel: channel.queue_delete(INTAKE),
    "delete an exchange": lambda channel: channel.exchange_delete(PARKED),
    "purge": lambda channel: channel.queue_purge(PARKED),
    "consume": lambda channel: channel.basic_consume(INTAKE, lambda *_: None),
    "get": lambda channel: channel.basic_get(PARKED),
    "bind the queue": lambda channel: channel.queue_bind(INTAKE, "amq.fanout"),
    "unbind the queue": lambda channel: channel.queue_unbind(INTAKE, "amq.fanout"),
    "bind to the exchange": lambda channel: channel.queue_bind("some-queue", ONE),
    "bind exchanges to it": lambda channel: channel.exchange_bind(PARKED, "amq.fanout"),
    "bind exchanges from it": lambda channel: channel.exchange_bind("amq.fanout", PARKED),
    "publish": lambda channel: published(channel, ONE, b"a body"),
    "publish nothing": lambda channel: published(channel, PARKED, b""),
}


@pytest.mark.once
@pytest.mark.proxied
@pytest.mark.parametrize("deed", OWN)
def test_the_proxys_names_are_refused_whatever_rights_there_are(sides, via, deed):
    by_the_broker = sides[0].attempt(OWN[deed], user="p-not-ours")
    # From 3.12 on the broker also says which right was missing.
    shorter = lambda word: re.sub("(configure|read|write) access", "access", word).replace("p-not-ours", "p-all")
    assert sides[1].attempt(OWN[deed], user="p-all") == tuple(shorter(word) if isinstance(word, str) else word for word in by_the_broker)


# --- Limits on connections and queues ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def small(via):
    """Two vhosts of which nobody else makes use."""
    vhosts = (f"limits-{via.mode[:4]}", "limits-spec")
    via.broker.make(vhosts, [], [(user, vhost, ALL, ALL, ALL) for user in ("p-all", "p-one-connection", via.broker.user) for vhost in vhosts])
    sides = [Side(via, vhosts[1], direct=True), Side(via, vhosts[0], direct=via.is_direct)]
    yield sides
    for side in sides:
        side.hang_up()
    via.broker.unmake(vhosts, [])


def opened(side, user):
    """A new connection, or the words by which it was refused."""
    try:
        return side.via.connect(direct=side.direct, vhost=side.vhost, user=user)
    except pika.exceptions.AMQPConnectionError as refusal:
        return repr(refusal).replace(side.vhost, "VHOST")


def one_too_many(side, user):
    """What is said to it. The broker counts connections with a delay: those before it are tried again."""
    kept = []
    try:
        def refused():
            kept.append(opened(side, user))
            if isinstance(kept[-1], str):
                return kept.pop()

        return until(refused, f"a limit for {user}", pause=0.3), len(kept)
    finally:
        for connection in kept:
            connection.close()


@pytest.mark.once
def test_a_vhost_that_is_not_there_and_one_without_a_right(via, sides):
    for vhost in ("no-such-vhost", via.foreign):
        by_the_broker, by_the_way = (opened(Side(via, vhost, direct), "p-all") for direct in (True, False))
        assert by_the_way == by_the_broker and "VHOST" in by_the_broker


@pytest.mark.once
def test_connections_of_a_user(via, small):
    with user_limit(via, "p-one-connection", "max-connections", 1):
        by_the_broker, by_the_way = (one_too_many(side, "p-one-connection") for side in small)
    assert by_the_way[0] == by_the_broker[0] and "limit (1)" in by_the_broker[0]


@pytest.mark.once
def test_connections_and_queues_of_a_vhost(via, small):
    """What the proxy has there of its own counts too."""
    said = []
    for side in small:
        first = opened(side, "p-all")
        links, queues = (0, 0) if side.direct else (3, 3)
        if links:
            up = lambda link: metric(via, f'dlx_proxy_link_up{{vhost="{side.vhost}",link="{link}"}}')
            until(lambda: up("publisher") and up("intake") and up("pulse") and metric(via, f'dlx_proxy_intake_consuming{{vhost="{side.vhost}"}}'), "links")
            until(lambda: len(via.broker.queues(side.vhost)) == queues, "its own queues")
        via.broker.ctl("-q", "set_vhost_limits", "-p", side.vhost, f'{{"max-connections": {links + 1}, "max-queues": {queues + 1}}}')
        refusal, more = one_too_many(side, "p-all")
        first.close()
        # Those that were closed may still be counted.
        until(lambda: side.declare("first", user="p-all", dlx="")[0] == "ok", "room for a connection", pause=0.3)
        answers = [side.declare(queue, user="p-all", **how) for queue in ("first", "second") for how in (dict(dlx=""), dict(), dict(dlx="other"))]
        said.append([re.sub(r"\(\d\)", "(N)", str(words)) for words in (refusal, *answers)])
        via.broker.ctl("-q", "clear_vhost_limits", "-p", side.vhost)
    assert said[1] == said[0]
    assert "connection limit (N)" in said[0][0] and "queue limit" in said[0][-1]


# --- Limits on channels --------------------------------------------------------------------------------------------------------------------

def only_channel(via, user):
    """A connection and a channel of a user who may have but one: its last one may not be forgotten yet."""
    def opened():
        connection = via.connect(user=user)
        try:
            return connection, connection.channel()
        except pika.exceptions.ConnectionClosedByBroker as refusal:
            assert "number of channels opened for user" in refusal.reply_text

    return until(opened, "a channel", pause=0.2)


@pytest.mark.once
@pytest.mark.proxied
def test_a_probe_costs_a_user_with_a_limit_on_channels_one_connection(scene, via):
    series = 'dlx_proxy_events_total{event="probe_over_limit"}'
    with user_limit(via, "p-one-channel", "max-channels", 1):
        before = metric(via, series), left(via, "channel_limit")
        _, channel = only_channel(via, "p-one-channel")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as refusal:
            scene.queue("queue", channel=channel, dlx="")
        assert refusal.value.reply_code == 530 and "number of channels opened for user" in refusal.value.reply_text
        for attempt in range(2):
            connection, channel = only_channel(via, "p-one-channel")
            queues = [scene.queue(f"queue{suffix}", channel=channel, dlx="") for suffix in ("", attempt)]
            connection.close()
        assert (metric(via, series), left(via, "channel_limit")) == (before[0] + 1, before[1] + 4)
        assert via.proxy.text().count("a probe of the proxy met a limit on channels") == 1
        with via.direct.channel() as direct:
            for queue in queues:
                direct.queue_declare(queue, durable=True, arguments=arguments(dlx=""))  # native: the client's own arguments


@pytest.mark.once
@pytest.mark.proxied
def test_a_queue_that_was_taken_over_is_declared_so_by_a_user_who_is_not_probed(scene, via, tmp_path):
    """Also by a proxy that has not seen the queue before: one refused declare tells it."""
    scene.queue("queue", dlx="the-dlx")
    with user_limit(via, "p-few-channels", "max-channels", 1):
        proxy = Proxy(via.broker.url, "full", tmp_path / "another.log", DLX_PROXY_VHOSTS=via.vhost)
        try:
            proxy.wait_ready()
            for way, refusals in (via, 0), (Via(via.broker, via.mode, proxy), 1):
                _, channel = only_channel(way, "p-few-channels")
                with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                    scene.queue("queue", channel=channel, dlx="the-dlx")
                for _ in range(refusals):
                    connection, channel = only_channel(way, "p-few-channels")
                    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
                        scene.queue("queue", channel=channel, dlx="the-dlx")
                    assert refusal.value.reply_code == 406 and "but current is 'the-dlx', taken over by the proxy" in refusal.value.reply_text
                    connection.close()
                connection, channel = only_channel(way, "p-few-channels")
                scene.queue("queue", channel=channel, dlx="the-dlx")
                with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
                    scene.queue("queue", channel=channel, dlx="another-dlx")
                assert refusal.value.reply_text.endswith("received 'another-dlx' but current is 'the-dlx'")
                connection.close()
        finally:
            proxy.stop()
