"""What a declare that is taken over may and may not do: no dead letter reaches an exchange that its user may not write to, nothing is left
behind a refusal, no exchange is missing, nobody has them all. The names of queues and intake exchanges are what other clients have left."""

import pika
import pytest

from lab import Proxy, Via, until
from scene import arguments
from test_permissions import left

ALL = ".*"
WRITE = {"t-all": ALL, "t-no-secret": "^(dlx-proxy|(?!.*secret))", "t-not-ours": "^(?!dlx-proxy)", "t-changing": ALL, "t-first": ALL, "t-second": ALL}


@pytest.fixture(scope="module", autouse=True)
def users(via):
    rights = [(user, via.vhost, ALL, write, ALL) for user, write in WRITE.items()]
    via.broker.make([], [(user, "secret") for user in WRITE], rights)
    yield
    via.broker.unmake([], WRITE)


def intakes(via, word):
    """The intake exchanges that are there and have this word in their names."""
    names = via.broker.exchanges(via.vhost)
    return sorted(name for name in names if name.startswith("dlx-proxy") and word in name)


def declare(way, queue, user, durable=True, exclusive=False, options={}, **short):
    """On a connection of its own: what the client hears."""
    connection = way.connect(user=user, **options)
    try:
        connection.channel().queue_declare(queue, durable=durable, exclusive=exclusive, arguments=arguments(**short))
        return "ok"
    except pika.exceptions.ChannelClosedByBroker as refusal:
        return refusal.reply_code, refusal.reply_text
    finally:
        if connection.is_open:
            connection.close()


ONE = {"channel_max": 1}
"""A connection whose only channel is the client's: no declare of it can be examined."""


@pytest.fixture
def another(via, tmp_path):
    """A second proxy in front of the same broker, which has seen nothing."""
    proxy = Proxy(via.broker.url, "full", tmp_path / "another.log", DLX_PROXY_VHOSTS=via.vhost)
    try:
        proxy.wait_ready()
        yield Via(via.broker, via.mode, proxy)
    finally:
        proxy.stop()


def delete(via, queue=None, exchange=None):
    """At the broker itself: the proxy does not hear of it."""
    with via.direct.channel() as channel:
        if queue:
            channel.queue_delete(queue)
        if exchange:
            channel.exchange_delete(exchange)


def is_native(via, queue, **short):
    """It has the client's own arguments."""
    with via.direct.channel() as channel:
        channel.queue_declare(queue, durable=True, arguments=arguments(**short))
    return True


# --- Permissions ---------------------------------------------------------------------------------------------------------------------------

@pytest.mark.takeover
@pytest.mark.proxied
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_name_that_was_taken_over_gives_no_permission(scene, via, kind):
    """The queue is gone, which the proxy has not heard; its name is declared by one who may not write to its exchange."""
    secret, queue = scene.name("secret"), scene.queue("queue", kind=kind, dlx=scene.name("secret"))
    delete(via, queue)
    code, text = declare(via, queue, "t-no-secret", options=ONE, kind=kind, dlx=secret)
    assert code == 404 and text.startswith("NOT_FOUND - no queue")
    code, text = declare(via, queue, "t-no-secret", options=ONE, kind=kind, dlx=secret)
    assert code == 403 and f"access to exchange '{secret}'" in text
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as missing:
        via.direct.channel().queue_declare(queue, passive=True)
    assert missing.value.reply_code == 404


@pytest.mark.takeover
@pytest.mark.proxied
def test_nor_with_another(scene, via):
    """The name is short: the broker cuts its texts."""
    secret, open_ = scene.name("secret"), scene.name("open")
    queue = scene.queue("queue", dlx=open_)
    code, text = declare(via, queue, "t-no-secret", options=ONE, dlx=secret)
    assert code == 406 and text.endswith(f"received '{secret}' but current is '{open_}'")
    delete(via, queue)
    code, text = declare(via, queue, "t-no-secret", options=ONE, dlx=secret)
    assert code == 403 and f"access to exchange '{secret}'" in text


@pytest.mark.takeover
@pytest.mark.proxied
def test_no_rest(scene, via):
    """Behind a refusal nothing is left."""
    dlx = scene.name("secret")
    assert declare(via, scene.name("queue"), "t-no-secret", dlx=dlx)[0] == 403
    scene.queues.append(scene.name("native"))
    assert declare(via, scene.name("native"), "t-not-ours", dlx=scene.name("left")) == "ok"
    assert is_native(via, scene.name("native"), dlx=scene.name("left"))
    assert declare(via, scene.name("bad"), "t-all", dlx=scene.name("bad"), max_length=-1)[0] == 406
    assert declare(via, scene.name("quorum"), "t-all", exclusive=True, kind="quorum", dlx=scene.name("quorum"))[0] == 406
    if not via.broker.is_from(4, 3):  # it closes the whole connection
        assert declare(via, scene.name("transient"), "t-all", durable=False, kind="quorum", dlx=scene.name("transient"))[0] == 406
    assert intakes(via, scene.prefix) == []


@pytest.mark.takeover
@pytest.mark.proxied
def test_what_one_connection_was_permitted_counts_for_no_other(scene, via):
    """By the name of the user it would: that is only what a client says of itself."""
    dlx = scene.name("secret")
    scene.queues.extend([scene.name("first"), scene.name("second")])
    try:
        assert declare(via, scene.name("first"), "t-changing", dlx=dlx) == "ok"
        via.broker.permit(via.vhost, "t-changing", ALL, WRITE["t-no-secret"], ALL)
        assert declare(via, scene.name("third"), "t-changing", dlx=dlx)[0] == 403
    finally:
        via.broker.permit(via.vhost, "t-changing", ALL, ALL, ALL)


# --- The intake exchange is there ------------------------------------------------------------------------------------------------------------

@pytest.mark.takeover
@pytest.mark.proxied
def test_in_doubt(scene, via, another):
    """The intake exchange is there before the queue, or the queue is native."""
    dlx, sink = scene.target()
    queue = scene.queue("queue", ttl=1, dlx=dlx)
    (intake,) = intakes(via, scene.prefix)
    # One refused declare tells the other proxy what the queue is; the next one finds it, and the exchange is made again.
    assert declare(another, queue, "t-all", options=ONE, ttl=1, dlx=dlx)[0] == 406
    delete(via, exchange=intake)
    assert declare(another, queue, "t-all", options=ONE, ttl=1, dlx=dlx) == "ok"
    assert intakes(via, scene.prefix) == [intake]
    scene.publish("", queue)
    assert sink.one()[1].headers["x-death"][0]["queue"] == queue
    # Both are gone: nothing is declared with an exchange that nobody has made.
    delete(via, queue, intake)
    assert declare(another, queue, "t-all", options=ONE, ttl=1, dlx=dlx)[0] == 404
    assert declare(another, queue, "t-all", options=ONE, ttl=1, dlx=dlx) == "ok"
    assert is_native(via, queue, ttl=1, dlx=dlx)
    scene.publish("", queue)
    assert sink.one()[1].headers["x-death"][0]["queue"] == queue


@pytest.mark.takeover
@pytest.mark.proxied
def test_one_user_has_half_of_the_intake_exchanges(scene, via, tmp_path):
    prefix = "share"
    proxy = Proxy(via.broker.url, "full", tmp_path / "own.log", DLX_PROXY_PREFIX=prefix, DLX_PROXY_MAX_INTAKE_EXCHANGES="4")
    way = Via(via.broker, via.mode, proxy)
    try:
        proxy.wait_ready()
        declared = {}
        for user, most in ("t-first", 2), ("t-second", 2):
            for number in range(3):
                queue = declared[user, number] = scene.name(f"{user}-{number}")
                scene.queues.append(queue)
                assert declare(way, queue, user, dlx=queue) == "ok"
            assert left(way, "no_intake") == (1 if user == "t-first" else 2)
            assert is_native(via, declared[user, most], dlx=declared[user, most])
    finally:
        proxy.stop()
        with via.direct.channel() as channel:
            for name in via.broker.exchanges(via.vhost):
                if name.startswith(prefix):
                    channel.exchange_delete(name)
            for queue in f"{prefix}.intake", f"{prefix}.parked":
                channel.queue_delete(queue)


# --- The queue is another ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.proxied
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_made_anew_elsewhere_before_its_consumer_begins_has_its_new_target(scene, via, kind):
    old, old_sink = scene.target("old")
    new, new_sink = scene.target("new")
    queue = scene.queue("queue", kind=kind, dlx=old)
    delete(via, queue)
    with via.direct.channel() as direct:
        direct.queue_declare(queue, durable=True, arguments=arguments(kind=kind, dlx=new))
    channel = via.connection.channel()
    got = []
    channel.basic_consume(queue, lambda *delivery: got.append(delivery))
    for body in b"first", b"second":
        scene.publish("", queue, body)
        until(lambda: got, "a delivery", pause=lambda: via.connection.process_data_events(time_limit=0.05))
        channel.basic_reject(got.pop()[1].delivery_tag, requeue=False)
        assert new_sink.one()[2] == body
    assert not old_sink.arrived
    channel.close()


@pytest.mark.takeover
@pytest.mark.proxied
def test_a_declare_that_would_grow_over_the_frame_stays_native(scene, via):
    before = left(via, "frame_max")
    queue = scene.name("queue")
    scene.queues.append(queue)
    fixed = {"x-dead-letter-exchange": "", "x-filler": ""}
    # Frame, method and table are as large as may be: 8,192 octets.
    empty = pika.frame.Method(1, pika.spec.Queue.Declare(queue=queue, durable=True, arguments=fixed)).marshal()
    fixed["x-filler"] = "x" * (8192 - len(empty))
    connection = via.connect(frame_max=8192)
    connection.channel().queue_declare(queue, durable=True, arguments=fixed)
    connection.channel()  # nor is it closed behind that
    connection.close()
    assert left(via, "frame_max") == before + 1
    with via.direct.channel() as direct:
        direct.queue_declare(queue, durable=True, arguments=fixed)
