"""Parked messages go to their targets by themselves, once these can take them; and only those that the proxy parked."""

from collections import Counter
from contextlib import contextmanager

import pika
import pytest

from lab import until
from own import PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]


def park(own, count, exchange="later", queue="source"):
    """So many messages die towards an exchange that is not there."""
    source = own.queue(queue, x_dead_letter_exchange=exchange)
    before = own.depth(PARKED)
    for number in range(count):
        own.channel.basic_publish("", source, b"%d" % number, pika.BasicProperties(delivery_mode=2, message_id=f"{exchange} {number}"))
    for _ in range(count):
        own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    until(lambda: own.depth(PARKED) == before + count, lambda: f"{own.depth(PARKED)} parked")


def make(own, exchange="later"):
    """The target. It leads to its queue from the moment at which it is there: a lap between its declare and a bind of its own would find it
    unroutable, and put what is oldest behind the others."""
    sink = own.queue(f"sink-{exchange}")
    with own.via.direct.channel() as channel:
        channel.exchange_declare(f"own-{exchange}-behind", "fanout")
        channel.queue_bind(sink, f"own-{exchange}-behind")
        channel.exchange_declare(f"own-{exchange}", "fanout", arguments={"alternate-exchange": f"own-{exchange}-behind"})
    return sink


@contextmanager
def refusing(own, queues):
    """The proxy's own queues of these names (a regular expression) take nothing for a while."""
    broker, vhost = own.via.broker, own.via.vhost
    broker.set_policy(vhost, "refusing", rf"^{PREFIX}\.({queues})$", {"max-length": 0, "overflow": "reject-publish"})
    try:
        yield
    finally:
        broker.clear_policy(vhost, "refusing")


def all_of(own, sink, count):
    until(lambda: own.depth(sink) >= count, lambda: f"{own.depth(sink)} of {count} arrived")
    with own.via.direct.channel() as channel:
        got = [channel.basic_get(sink, auto_ack=True) for _ in range(own.depth(sink))]
    return got


@pytest.mark.parametrize("own", ["quorum", "classic"], indirect=True)
def test_they_go_when_their_exchange_is_there(own):
    """As they were before, oldest first."""
    own.restart(parked_retry="1s")
    park(own, 20, "own-later")
    until(lambda: own.metric("dlx_proxy_parked_waiting") == 20, "a lap has moved nothing")
    got = all_of(own, make(own), 20)
    assert [body for _, _, body in got] == [b"%d" % number for number in range(20)]
    for _, properties, _ in got:
        assert not {"x-parked-exchange", "x-parked-cause", "x-dlx-proxy-user-id", "x-delivery-count"} & properties.headers.keys(), properties
        assert properties.user_id is None
        assert [death["count"] for death in properties.headers["x-death"]] == [1]
    until(lambda: own.depth(PARKED) == 0, "nothing is parked")
    until(lambda: own.metric("dlx_proxy_parked_waiting") == 0, "counted")
    assert own.metric("dlx_proxy_messages_dead_lettered_total") == 20


def test_who_writes_into_the_parking_queue_moves_nothing(own):
    """The proxy would publish it with its own rights."""
    sink = make(own, "secret")
    own.restart(parked_retry="500ms")
    headers = {"x-parked-exchange": "own-secret", "x-parked-cause": "no_exchange", "x-dlx-proxy-user-id": None}
    with own.via.direct.channel() as channel:
        channel.basic_publish("", PARKED, b"forged", pika.BasicProperties(headers=headers))
    until(lambda: own.metric("dlx_proxy_parked_staying") == 1, "counted")
    park(own, 1, "own-later")
    all_of(own, make(own), 1)
    assert own.depth(sink) == 0
    [(method, properties, body)] = own.parked(1)
    properties.headers.pop("x-delivery-count", None)
    assert (body, properties.headers) == (b"forged", headers)


def test_one_that_cannot_go_is_in_nobodys_way(own):
    park(own, 30, "own-never", "blocking")
    park(own, 30, "own-later", "blocked")
    own.restart(parked_retry="500ms")
    got = all_of(own, make(own), 30)
    assert [body for _, _, body in got] == [b"%d" % number for number in range(30)]
    until(lambda: own.depth(PARKED) == 30, lambda: f"{own.depth(PARKED)} parked")
    until(lambda: own.metric("dlx_proxy_parked_waiting") == 30, "counted")


def test_while_one_queue_is_full_the_others_get_no_copy_of_all(own):
    """Of what was refused only one message is tried, and not in each lap."""
    own.restart(parked_retry="500ms", nack_retries="0")
    open_, full = own.queue("open"), own.queue("full", x_max_length=1, x_overflow="reject-publish")
    with own.via.direct.channel() as channel:
        channel.exchange_declare("own-fan", "fanout")
        channel.queue_bind(open_, "own-fan")
        channel.basic_publish("", full, b"full")
        until(lambda: own.depth(full) == 1, "it is full")
        channel.queue_bind(full, "own-fan")
    park(own, 5, "own-fan")
    copies = Counter()

    def read():
        with own.via.direct.channel() as channel:
            copies.update(channel.basic_get(open_, auto_ack=True)[2] for _ in range(own.depth(open_)))

    def oldest_was_tried_twice():
        read()
        return copies[b"0"] >= 3

    until(oldest_was_tried_twice, lambda: f"{copies}")
    assert copies == {b"0": 3} | {b"%d" % number: 1 for number in range(1, 5)}
    with own.via.direct.channel() as channel:
        channel.queue_delete(full)
    until(lambda: own.depth(PARKED) == 0, lambda: f"{own.depth(PARKED)} parked")

    def each_came_once_more():
        read()
        return copies.total() >= 7 + 5

    until(each_came_once_more, lambda: f"{copies}")
    assert copies.total() == 7 + 5


@pytest.mark.parametrize("own", ["classic"], indirect=True)
def test_while_the_parking_queue_refuses_too_nothing_is_left_to_the_broker(own):
    """It would move what was rejected into the intake queue, at most once: lost, if that refuses as well. So it is when all three lose their leader.
    On 3.10 a channel to which a quorum queue has once refused something is not told when a policy takes away the limit."""
    own.restart(nack_retries="0")
    full, witness = own.queue("full", x_max_length=0, x_overflow="reject-publish"), own.queue("witness")
    source = own.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=full)
    with own.via.direct.channel() as channel:
        channel.queue_bind(witness, PARKED, "#")
    with refusing(own, "intake|parked"):
        for number in range(10):
            own.publish(source, b"%d" % number)
        for _ in range(10):
            own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
        until(lambda: own.depth(witness) >= 30, lambda: f"tried to park {own.depth(witness)} times")
        assert own.depth(PARKED) == 0
    assert {body for _, _, body in own.parked(10)} == {b"%d" % number for number in range(10)}
    assert "parked messages went to their targets" not in own.proxy.text() and own.depth(source) == 0


@pytest.mark.parametrize("own", ["classic"], indirect=True)
def test_what_expires_while_the_parking_queue_refuses_for_long_is_not_lost(own):
    """A quorum queue would keep what the proxy rejects, and try again after three minutes; a classic one would lose it."""
    own.restart(nack_retries="0", give_up_after="1s")
    full = own.queue("full", x_max_length=0, x_overflow="reject-publish")
    source = own.queue("source", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=full)
    with refusing(own, "parked"):
        for number in range(10):
            own.publish(source, b"%d" % number)
        until(lambda: own.metric("dlx_proxy_dead_letters_undelivered_total") >= 10, "they were given up")
    assert {body for _, _, body in own.parked(10)} == {b"%d" % number for number in range(10)}


def test_two_proxies_take_turns(own, tmp_path):
    """Each message arrives once."""
    from lab import Proxy

    park(own, 300, "own-later")
    own.restart(parked_retry="300ms")
    settings = {"DLX_PROXY_PREFIX": "own", "DLX_PROXY_PARKED_RETRY": "300ms", "DLX_PROXY_VHOSTS": own.via.vhost}
    other = Proxy(own.upstream, "full", tmp_path / "other", **settings)
    try:
        other.wait_ready()
        for proxy in own.proxy, other:
            until(lambda: own.metric("dlx_proxy_parked_waiting", proxy) == 300, "each has had a lap")
        got = all_of(own, make(own), 300)
        until(lambda: own.depth(PARKED) == 0, "nothing is parked")
        assert len(got) == 300 and own.depth("own-sink-later") == 0
    finally:
        other.stop()


def test_kill_9_in_the_middle_loses_nothing(own):
    park(own, 500, "own-later")
    sink = make(own)
    own.restart(parked_retry="100ms")
    until(lambda: own.depth(sink) > 20, "a lap has begun", pause=0.001)
    own.proxy.process.kill()
    own.proxy.process.wait()
    got = {body for _, _, body in all_of(own, sink, 1)}
    own.start()
    until(lambda: own.depth(PARKED) == 0, lambda: f"{own.depth(PARKED)} parked")
    got |= {body for _, _, body in all_of(own, sink, 500 - len(got))}
    assert got == {b"%d" % number for number in range(500)}
