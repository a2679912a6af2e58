"""Dead letters that nothing takes: they are parked, in nobody's way, and go to their targets by themselves once these can take them. Only those that the
proxy parked do."""

import contextlib
import time
from collections import Counter

import pika
import pytest

from lab import DEADLINE, until
from muting import Muting
from scene import INTAKE, PARKED, PREFIX, broker_policy, user

def park(own, count, exchange="own-later"):
    """So many messages die at once, towards an exchange that is not there: a pass between them would put the first ones behind the others."""
    source = own.fill(own.queue("source", dlx=exchange), [b"%d" % number for number in range(count)])
    own.channel.basic_nack([own.get(source).method.delivery_tag for _ in range(count)][-1], multiple=True, requeue=False)
    own.has(PARKED, count)


def target(own, exchange="own-later"):
    """It leads to its queue from the moment at which it is there: a pass between its declare and a bind of its own would find it unroutable, and put what
    is oldest behind the others."""
    sink = own.queue("sink")
    with own.via.direct.channel() as channel:
        channel.exchange_declare(f"{exchange}-behind", "fanout")
        channel.queue_bind(sink, f"{exchange}-behind")
        channel.exchange_declare(exchange, "fanout", arguments={"alternate-exchange": f"{exchange}-behind"})
    return sink


@pytest.mark.parametrize("own", [{"intake_queue_type": kind, "parked_retry": "1s"} for kind in ("quorum", "classic")], ids=["quorum", "classic"], indirect=True)
def test_they_go_when_their_exchange_is_there(own):
    """As they were before, oldest first."""
    park(own, 20)
    until(lambda: own.metric("dlx_proxy_parked_waiting") == 20, "a pass has moved nothing")
    got = own.all_of(target(own), 20)
    assert [body for *_, body in got] == [b"%d" % number for number in range(20)]
    for _, properties, _ in got:
        assert not {"x-parked-exchange", "x-parked-cause", "x-dlx-proxy-user-id", "x-delivery-count"} & properties.headers.keys(), properties
        assert properties.user_id is None and [death["count"] for death in properties.headers["x-death"]] == [1]
    until(lambda: (own.depth(PARKED), own.metric("dlx_proxy_parked_waiting")) == (0, 0), "nothing is parked")
    assert own.metric("dlx_proxy_messages_dead_lettered_total") == 20


@pytest.mark.parametrize("own", [{"parked_retry": "500ms"}], indirect=True)
def test_who_writes_into_the_parking_queue_moves_nothing(own):
    """The proxy would publish it with its own rights. What is parked by the proxy says who published it, and no client can say so."""
    sink = target(own, "own-secret")
    headers = {"x-parked-exchange": "own-secret", "x-parked-cause": "no_exchange", "x-dlx-proxy-user-id": None}
    with own.via.direct.channel() as channel:
        own.publish("", PARKED, b"forged", channel=channel, headers=headers)
    until(lambda: own.metric("dlx_proxy_parked_staying") == 1, "counted")
    own.restart()
    for number, user in enumerate([None, own.via.broker.user]):
        own.die(own.queue("source", dlx="own-nowhere"), b"honest", user_id=user, headers=headers | {"n": number})
    own.has(PARKED, 3)
    assert own.depth(sink) == 0
    (_, forged, _), *honest = own.parked(3)
    forged.headers.pop("x-delivery-count", None)
    assert forged.headers == headers
    for (_, properties, _), user in zip(honest, [None, own.via.broker.user]):
        said = properties.headers
        assert (properties.user_id, said["x-dlx-proxy-user-id"]) == (own.via.broker.user, user)
        assert (said["x-parked-exchange"], said["x-parked-cause"]) == ("own-nowhere", "no_exchange")


def test_two_proxies_take_turns(own, tmp_path):
    """Each message arrives once; so does what expires, while both open their channels anew as nothing comes there."""
    park(own, 300)
    settings = {"parked_retry": "300ms", "intake_quiet": "100ms"}
    own.restart(**settings)
    other = own.another(tmp_path / "other", **settings)
    try:
        for proxy in own.proxy, other:
            until(lambda: proxy.metric("dlx_proxy_parked_waiting", vhost=own.via.vhost) == 300, "each has had a pass")
        sink = target(own)
        assert len(own.all_of(sink, 300)) == 300
        own.has(PARKED, 0)
        source, arrived = own.queue("brief", ttl=1, dlx="", dlk=sink), []
        for burst in range(3):
            time.sleep(0.5)
            for number in range(20):
                own.publish("", source, b"%d" % (20 * burst + number))
            arrived += own.all_of(sink, 20)
        assert [body for *_, body in arrived] == [b"%d" % number for number in range(60)]
        assert (own.depth(INTAKE), own.metric("dlx_proxy_link_failures_total", link="intake")) == (0, 0)
    finally:
        other.stop()


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_bad_targets_hold_up_no_other(own, reason):
    """A queue that is full, an exchange that is missing, and one to which the proxy's user may not publish. An internal one is none of these."""
    with user(own.via, "limited", write="^(?!own-forbidden)") as limited:
        own.restart(user=limited, nack_retries=1)
        full, healthy, behind = own.queue("full", max_length=1, overflow="reject-publish"), own.queue("healthy"), own.queue("behind")
        forbidden, internal = own.exchange("forbidden"), own.exchange("internal", internal=True)
        own.bind(behind, internal)
        for _ in range(2):
            own.publish("", full)
        targets = [("", full), ("own-missing", "k"), (forbidden, "k"), (internal, "k"), ("", healthy)]
        dies = {"ttl": 1} if reason == "expired" else {}
        sources = [own.queue(f"source-{number}", dlx=dlx, dlk=key, **dies) for number, (dlx, key) in enumerate(targets)]
        for number in range(40):
            for source in sources:
                own.publish("", source, b"%d" % number)
                if reason == "rejected":
                    own.reject(source)
        for queue in healthy, behind:
            own.has(queue, 40)
            assert [own.get(queue).body for _ in range(40)] == [b"%d" % number for number in range(40)], "in their order"
        own.publish("", sources[3], b"one more")
        if reason == "rejected":
            own.reject(sources[3])
        assert own.get(behind).method.exchange == internal, "nobody sees how it came there"
        parked = Counter((properties.headers["x-parked-exchange"], properties.headers["x-parked-cause"]) for _, properties, _ in own.parked(120))
        nacked = parked.pop(("", "nacked"), 0) + parked.pop(("", "target_busy"), 0)
        assert nacked == 40 and parked == {("own-missing", "no_exchange"): 40, (forbidden, "forbidden"): 40}
        own.stop()
    own.start()


def test_a_target_that_never_answers_holds_up_no_other(own):
    cable = Muting(own.via.broker.address)
    usual, own.address = own.address, cable.address
    own.restart(confirm_timeout="2s", give_up_after="6s")
    cable.exchange, healthy = own.exchange("silent"), own.queue("healthy")
    own.bind(own.queue("behind"), cable.exchange)
    sources = own.queue("bad", dlx=cable.exchange), own.queue("good", dlx="", dlk=healthy)
    for number in range(40):
        for source in sources:
            own.die(source, b"%d" % number)
    until(lambda: own.depth(healthy) == 40, "others arrive meanwhile", deadline=SOON)
    parked = own.parked(40)
    assert {properties.headers["x-parked-cause"] for _, properties, _ in parked} <= {"timed_out", "target_busy"}
    assert {body for *_, body in parked} == {b"%d" % number for number in range(40)}
    own.address = usual
    own.restart()
    cable.close()


SOON = 2.0
"""Seconds in which others' dead letters arrive. What waited for each of the bad ones needed minutes."""


@contextlib.contextmanager
def unpublishable(own):
    """A stream that its coordinator has forgotten: publishing to it closes the connection (506)."""
    stream, broker = own.made("stream", kind="stream"), own.via.broker
    broker.eval("ra:force_delete_server(coordination, {rabbit_stream_coordinator, node()}).")
    try:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel = own.via.connect(direct=True).channel()
            channel.confirm_delivery()
            channel.basic_publish("", stream, b"closes the connection")
        assert closed.value.reply_code == 506
        yield stream
    finally:
        # The next stream gets a new coordinator, which cannot delete the old one.
        own.made("healthy", kind="stream")
        broker.eval(f'Name = rabbit_misc:r(<<"{own.via.vhost}">>, queue, <<"{stream}">>), {{ok, Q}} = rabbit_amqqueue:lookup(Name), '
                   'catch rabbit_amqqueue:internal_delete(Name, <<"tests">>), catch rabbit_amqqueue:internal_delete(Q, <<"tests">>).')


@pytest.mark.parametrize("own", [{"give_up_after": "8s"}], indirect=True)
def test_a_target_that_closes_the_connection_holds_up_nobody(own):
    """One of another target in the midst of them, and then one after the other while they are tried: all of it comes soon, in order, perhaps twice."""
    count, waits = 200, []
    with unpublishable(own) as bad, own.via.direct.channel() as reader:
        sink = own.queue("sink")
        sick, sound = own.queue("sick", dlx="", dlk=bad), own.queue("sound", dlx="", dlk=sink)

        def arrives(body):
            began = time.monotonic()
            until(lambda: reader.basic_get(sink, auto_ack=True)[2] == body, lambda: f"{body}; before: {waits}", deadline=SOON)
            waits.append(time.monotonic() - began)

        for number in range(count):
            own.publish("", sick, b"%d" % number)
        own.publish("", sound, b"beside")
        own.get(sound)
        last = [own.get(sick).method.delivery_tag for _ in range(count)][-1]
        own.channel.basic_nack(last, multiple=True, requeue=False)
        end = time.monotonic() + DEADLINE
        arrives(b"beside")
        while own.depth(PARKED) < count:
            assert time.monotonic() < end, f"{own.depth(PARKED)} of {count} parked"
            own.die(sound, b"number %d" % len(waits))
            arrives(b"number %d" % (len(waits)))
    print(f"{len(waits)} others: {max(waits):.2f} s at most")
    parked = own.parked(own.depth(PARKED))
    assert {body for *_, body in parked} == {b"%d" % number for number in range(count)}
    assert {(properties.headers["x-parked-exchange"], properties.headers["x-parked-cause"]) for _, properties, _ in parked} == {("", "poison")}


def test_what_the_intake_holds_for_longer_than_a_policy_says_arrives_once(own):
    """From 4.3 on it asks for a longer `consumer_timeout` itself (S9.5)."""
    if not own.via.broker.is_from(4, 3):
        pytest.skip("older brokers look once a minute, and 3.10 has no such policy")
    with broker_policy(own, "held", rf"^{PREFIX}\.intake$", {"consumer-timeout": 500}, 9):
        own.restart(nack_retries="12")
        sink = own.queue("sink")
        source = own.queue("source", ttl=1, dlx="", dlk=sink)
        with broker_policy(own, "full", f"^{sink}$", {"max-length": 0, "overflow": "reject-publish"}):
            for number in range(20):
                own.publish("", source, b"%d" % number)
            time.sleep(4)  # Several times as long as the policy says.
        assert {body for *_, body in own.all_of(sink, 20)} == {b"%d" % number for number in range(20)}
        own.has(INTAKE, 0)
        said = own.proxy.text()
        assert (own.depth(sink), own.metric("dlx_proxy_link_failures_total", link="intake")) == (0, 0) and "reuse" not in said and "timed out" not in said, said
