"""Queues whose dead-letter exchange only a policy of the proxy names, in mode `rejects-only`: the broker would discard what it was told to reject. So
nothing is lost here, whatever keeps the proxy from publishing, and whoever says nothing of a queue; and nothing goes round more than a few times."""

import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import until
from scene import PARKED, policies, user

SMALL, ROOM = 20, 64 * 1024
ALL = [b"%d" % number for number in range(SMALL)]


@pytest.fixture
def kept(own, tmp_path):
    """A proxy with the policy: what dies in `own-source…` goes to the queue `own-dead`. Queues `own-retried…` have retries, too."""
    leads = {"dead-letter-exchange": "", "dead-letter-routing-key": "own-dead"}
    retries = leads | {"delayed-retry-min": 1000, "delivery-limit": 100}
    file = policies(tmp_path / "dlx-proxy.toml", own.via.vhost, kept=("^own-source", leads), retried=("^own-retried", retries))
    own.restart(mode="rejects-only", config=file, retained_bytes_per_connection=ROOM)
    own.made("dead")
    return own


def filled(own, label, bodies=ALL, **short):
    return own.fill(own.queue(label, **short), bodies)


def works(own, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        own.connection.process_data_events(time_limit=0.05)


def blocked(own):
    """The broker tells the publisher that it is blocked when it publishes; what comes then is refused at once."""
    until(lambda: own.proxy.metric("dlx_proxy_publisher_blocked") == 1, "a publisher that is blocked")
    works(own, 6)


def are_dead(own):
    assert sorted((body for *_, body in own.all_of("own-dead", SMALL)), key=int) == ALL


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_in_an_alarm_rejects_and_returns_are_kept(kept, kind):
    """A later `multiple` does not settle them; and none comes back twice."""
    sources = filled(kept, "source", [*ALL, b"one more"], kind=kind), filled(kept, "retried", kind=kind)
    rejects, returns = ([kept.get(queue).method.delivery_tag for _ in ALL] for queue in sources)
    nack = lambda tag, requeue: kept.channel.basic_nack(tag, requeue=requeue)
    with kept.via.broker.under_memory_alarm():
        nack(rejects[0], False)
        blocked(kept)
        for tag in rejects[1:]:
            nack(tag, False)
        for tag in returns:
            nack(tag, True)
        until(lambda: kept.proxy.metric("dlx_proxy_rejects_kept_total") >= 2 * SMALL - 1, "that many are kept")
        kept.channel.basic_ack(kept.get(sources[0]).method.delivery_tag, multiple=True)
        works(kept, 3)
        assert kept.proxy.metric("dlx_proxy_withheld_rejects") == 2 * SMALL and [kept.depth(queue) for queue in sources] == [0, 0]
    are_dead(kept)
    again = [kept.get(sources[1]) for _ in ALL]
    assert Counter(body for *_, body in again) == Counter(ALL)
    kept.channel.basic_ack(again[-1].method.delivery_tag, multiple=True)
    until(lambda: all(kept.via.broker.messages(kept.via.vhost, queue) == 0 for queue in sources), "nothing is left")


def test_the_end_amid_an_alarm(kept):
    """Whatever ends while rejects are withheld: their messages are in their queue again. Each end has a client and a queue of its own."""
    clients = {}
    for how in "channel", "connection", "vanish", "drain":
        channel = kept.via.connect().channel()
        queue = kept.queue(f"source-{how}", channel=channel, kind="quorum")
        kept.fill(queue, ALL)
        clients[how] = channel, queue, [kept.get(queue, channel).method.delivery_tag for _ in ALL]
    first = filled(kept, "source")
    with kept.via.broker.under_memory_alarm(), ThreadPoolExecutor() as pool:
        kept.reject(first)
        blocked(kept)
        for channel, _, tags in clients.values():
            for tag in tags:
                channel.basic_reject(tag, requeue=False)
        until(lambda: kept.proxy.metric("dlx_proxy_rejects_kept_total") >= len(clients) * SMALL, "that many rejects are kept")
        closed = [pool.submit(clients["channel"][0].close), pool.submit(clients["connection"][0].connection.close)]
        clients["vanish"][0].connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        for how in "channel", "connection", "vanish":
            kept.has(clients[how][1], SMALL)
        for each in closed:
            each.result()
        assert kept.depth(clients["drain"][1]) == 0
        kept.proxy.process.terminate()
        kept.has(clients["drain"][1], SMALL)
        kept.proxy.process.wait()
    # What was published before the alarm reached the proxy is in both: at least once.
    until(lambda: kept.depth(first) + kept.depth("own-dead") >= SMALL, lambda: f"{kept.depth(first)} are back")


@pytest.mark.parametrize("label, requeue, pauses", [("source", False, (1, 2)), ("retried", True, (1, 2, 4))])
def test_what_is_larger_than_the_memory_comes_back_after_growing_pauses(kept, label, requeue, pauses):
    queue, seen = filled(kept, label, [b"x" * (2 * ROOM)]), []

    def settle(channel, method, *_):
        seen.append(time.monotonic())
        channel.basic_reject(method.delivery_tag, requeue=requeue)

    kept.channel.basic_consume(queue, settle)
    until(lambda: len(seen) == len(pauses) + 1, lambda: f"seen {len(seen)} times", pause=lambda: works(kept, 0.05))
    assert all(after - before > pause for before, after, pause in zip(seen, seen[1:], pauses)), seen
    assert kept.proxy.event("kept_returned") == len(seen) - 1
    kept.via.close()
    kept.has(queue, 1)


def test_in_a_transaction_it_returns_with_the_commit(kept):
    """Nothing is published. What the broker would discard returns, not often; near a limit on deliveries it stays."""
    queue, channel = filled(kept, "source", kind="quorum"), kept.channel
    channel.tx_select()
    tags = [kept.get(queue).method.delivery_tag for _ in ALL]
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    channel.tx_rollback()
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    began = time.monotonic()
    channel.tx_commit()
    assert time.monotonic() - began > 0.9, "a commit waits that returns messages"
    for _ in range(6):
        if (got := channel.basic_get(queue))[0]:
            channel.basic_reject(got[0].delivery_tag, requeue=False)
            channel.tx_commit()
    kept.via.close()
    kept.has(queue, SMALL)
    assert kept.depth("own-dead") == 0 and kept.proxy.event("kept_returned") >= SMALL


def test_what_a_full_queue_refuses_waits_for_room(kept):
    """Nobody calls it a dead letter. Without a delay the broker requeues it, which never fails."""
    for label, refused in (("retried-full", ("dlx_proxy_retries_total", {"outcome": "refused"}, 3)), ("full", None)):
        queue = kept.queue(label, max_length=2, overflow="reject-publish", **{} if refused else {"limit": 100})
        kept.publish("", queue, b"back")
        message = kept.get(queue)
        for _ in range(SMALL):
            kept.publish("", queue, b"fill")
        kept.has(queue, 2)
        kept.channel.basic_nack(message.method.delivery_tag, requeue=True)
        name, labels, count = refused or ("dlx_proxy_fallbacks_total", {"request": "return", "cause": "queue_full"}, 1)
        until(lambda: kept.proxy.metric(name, **labels) == count, f"{name} counts", pause=lambda: works(kept, 0.05))
        until(lambda: kept.channel.basic_get(queue, auto_ack=True)[2] == b"back", "it is back")
    assert (kept.proxy.metric("dlx_proxy_dead_letters_total"), kept.depth(PARKED)) == (0, 0)


# --- Queues that nobody declared here -----------------------------------------------------------------------------------------------------------


def rejects_all(kept, connection, queue):
    """A worker that declares nothing."""
    channel, seen = connection.channel(), []
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume(queue, lambda channel, method, *_: (seen.append(method), channel.basic_reject(method.delivery_tag, requeue=False)))
    until(lambda: len(seen) >= SMALL, lambda: f"{len(seen)} of {SMALL} rejected", pause=lambda: connection.process_data_events(0.05))
    are_dead(kept)
    connection.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_worker_that_declares_nothing(kept, kind):
    """Another connection has declared the queue; or nobody, and the broker is asked what it is; or may not be asked any more."""
    rejects_all(kept, kept.via.connect(), filled(kept, "source", kind=kind))
    elsewhere, forbidden = (kept.made(label, kind=kind, dlx="", dlk="own-dead", ttl=600_000, max_length=100) for label in ("elsewhere", "forbidden"))
    for _ in range(2):
        rejects_all(kept, kept.via.connect(), kept.fill(elsewhere, ALL))
    with user(kept.via, "worker") as worker:
        kept.fill("own-source", ALL)
        connection = kept.via.connect(user=worker)
        kept.queue("source", channel=connection.channel(), kind=kind)
        kept.via.broker.permit(kept.via.vhost, worker, "^$", ".*", ".*")
        rejects_all(kept, connection, "own-source")
        assert (dead_lettered := kept.proxy.metric("dlx_proxy_messages_dead_lettered_total")) == 4 * SMALL
        assert kept.proxy.metric("dlx_proxy_fallbacks_total") == 0
        # Who may not ask leaves the rejects to the broker, which is said once.
        for _ in range(2):
            rejects_all(kept, kept.via.connect(user=worker), kept.fill(forbidden, ALL))
    assert kept.proxy.metric("dlx_proxy_messages_dead_lettered_total") == dead_lettered
    assert kept.proxy.metric("dlx_proxy_fallbacks_total", request="declare", cause="undeclared") == 1
    assert kept.proxy.text().count("nobody declared the queue here") == 1


def test_a_consumer_that_was_too_slow(kept):
    """From 4.3 on the broker takes its message back and cancels it (S9.5), or closes the channel of a client that does not know `basic.cancel`; the queue
    stays known."""
    if not kept.via.broker.is_from(4, 3):
        pytest.skip("up to 4.2 the channel is closed, whatever the client knows")
    queue, ends = filled(kept, "source", kind="quorum"), []
    for knows_cancel in (True, False):
        connection = kept.via.connect(client_properties={"capabilities": {"consumer_cancel_notify": knows_cancel}})
        slow = connection.channel()
        slow.basic_qos(prefetch_count=1)
        slow.add_on_cancel_callback(lambda frame: ends.append(frame.method.consumer_tag))
        slow._impl.add_on_close_callback(lambda _, reason: ends.append(reason.reply_code))
        slow.basic_consume(queue, lambda *_: None, consumer_tag="slow", arguments={"x-consumer-timeout": 500})
        until(lambda: ends, "a cancel or a close", pause=lambda: connection.process_data_events(0.05))
        assert ends == (["slow"] if knows_cancel else [406]) and connection.is_open
        connection.close()
        ends.clear()
    rejects_all(kept, kept.via.connect(), queue)


def test_a_vhost_whose_queues_are_quorum_queues_by_default(via):
    """A declare says no type, and a limit that classic queues do not know."""
    broker, vhost, arguments = via.broker, "clients-default-type", {"x-delivery-limit": 5}
    broker.unmake([vhost], [])
    broker.ctl("add_vhost", vhost, "--default-queue-type", "quorum")
    broker.permit(vhost, broker.user, ".*", ".*", ".*")
    try:
        with via.connect(direct=True, vhost=vhost) as direct, via.connect(vhost=vhost) as through:
            for queue, connections in (("there", (direct, through)), ("made", (through, direct))):
                for connection in connections:
                    connection.channel().queue_declare(queue, durable=True, arguments=arguments)
            # Nobody's own queue is of that type.
            through.channel().queue_declare("own", durable=True, exclusive=True, arguments=arguments)
    finally:
        broker.unmake([vhost], [])
