"""2: which exchange, which key, and what happens when nothing routes there."""

import pytest

from expect import Death, check, check_content, expect_parked, rules
from lab import until

pytestmark = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture(params=["rejected", "expired"])
def reason(request):
    """The two paths of a dead letter: a client's reject, and a death that the broker signals."""
    return request.param


def died(source, reason, *cc):
    return [Death(source, reason, "", [source, *cc])]


def check_death(scene, got, sent, source, reason, *, exchange, key, cc=(), **more):
    check(got, sent, scene.by(reason), died(source, reason, *cc), exchange=exchange, key=key, delivered=reason == "rejected", **more)


def test_key_of_its_own(scene, kind, reason):
    dlx = scene.exchange("dlx", "direct")
    sink = scene.sink(of=dlx, key="the key")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="the key")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key="the key")


def test_no_key_keeps_the_message_s(scene, kind, reason):
    dlx = scene.exchange("dlx", "direct")
    entry = scene.exchange("entry", "direct")
    sink = scene.sink(of=dlx, key="käse")
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    scene.bind(source, entry, "käse")
    sent = scene.publish(entry, "käse")
    scene.kill(source, reason)
    deaths = [Death(source, reason, entry, ["käse"])]
    check(sink.one(), sent, scene.by(reason), deaths, exchange=dlx, key="käse", delivered=reason == "rejected")


def test_an_empty_key_is_a_key(scene, kind, reason):
    dlx = scene.exchange("dlx", "direct")
    sink = scene.sink(of=dlx, key="")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key="")


def test_default_exchange(scene, kind, reason):
    sink = scene.sink()
    source = scene.source("source", reason, kind=kind, dlx="", dlk=sink.queue)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange="", key=sink.queue)


def test_names_that_need_escaping(scene, kind, reason):
    dlx = scene.exchange("a/b%2F c/+ü", "topic")
    sink = scene.sink(of=dlx, key="#")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="x/y%/ß .*")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key="x/y%/ß .*")


def test_names_that_leave_no_room(scene, kind, reason):
    """Exchange and key of 250 bytes each are good for the broker, and must stay so."""
    dlx = scene.exchange("x" * (249 - len(scene.prefix)), "direct")
    key = "k" * 250
    sink = scene.sink(of=dlx, key=key)
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk=key)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    # No intake exchange can carry these names, so the queue stays native: expiry is the broker's, a reject may be either's.
    by = rules(scene.via, "broker")
    check(sink.one(), sent, by, died(source, reason), exchange=dlx, key=key, delivered=reason == "rejected")


def test_cc_counts_without_a_key(scene, kind, reason):
    """2.2, 3.5: routed by key and CC; CC stays; a queue that several keys match gets one copy (2.6)."""
    dlx = scene.exchange("dlx", "direct")
    sinks = {key: scene.sink(f"sink.{key}", of=dlx, key=key) for key in ("one", "two")}
    both = scene.sink("both", of=dlx, key="one")
    scene.bind(both.queue, dlx, "two")
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    own = scene.sink("own", of=dlx, key=source)
    sent = scene.publish("", source, headers={"CC": ["one", "two"], "other": 1})
    scene.kill(source, reason)
    for sink in (own, both, *sinks.values()):
        check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=source, cc=("one", "two"))


def test_a_set_key_silences_cc(scene, kind, reason):
    """2.2, 3.3."""
    dlx = scene.exchange("dlx", "direct")
    sink = scene.sink(of=dlx, key="set")
    other = scene.sink("other", of=dlx, key="one")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="set")
    sent = scene.publish("", source, headers={"CC": ["one"], "other": 1})
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key="set", cc=("one",), keyed=True)
    assert not other.arrived


def test_cc_is_spent_at_a_set_key(scene, kind, reason):
    """2.5: after a death by a set key the CC keys count no more, at a keyless death neither."""
    dlx = scene.exchange("dlx", "direct")
    sink = scene.sink(of=dlx, key="set")
    other = scene.sink("other", of=dlx, key="one")
    middle = scene.source("middle", reason, kind=kind, dlx=dlx)
    scene.bind(middle, dlx, "in")
    scene.bind(sink.queue, dlx, "in")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="in")
    sent = scene.publish("", source, headers={"CC": ["one"]})
    scene.kill(source, reason)
    scene.kill(middle, reason)
    early, late = sorted(sink.take(2), key=lambda got: len(got[1].headers["x-death"]))
    first = died(source, reason, "one")
    by = scene.by(reason)
    again = [Death(middle, reason, dlx, ["in"])] + first
    check_content(early, sent, by, first, keyed=True)
    keys = late[1].headers["x-death"][0]["routing-keys"]
    if by.cc_survives_a_set_key:  # whether the header is among the keys of the next entry is the broker's affair
        again[0] = Death(middle, reason, dlx, keys)
    check(late, sent, by, again, exchange=dlx, key="in", delivered=reason == "rejected", keyed=True)
    assert not other.arrived


def test_bcc_counts_without_a_key_and_is_never_seen(scene, kind, reason):
    """2.2, 3.4."""
    dlx = scene.exchange("dlx", "direct")
    sink = scene.sink(of=dlx, key="blind")
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    own = scene.sink("own", of=dlx, key=source)
    sent = scene.publish("", source, headers={"BCC": ["blind"], "other": 1})
    scene.kill(source, reason)
    for got in (own.one(), sink.one()):
        check_death(scene, got, sent, source, reason, exchange=dlx, key=source)


def test_topic_exchange(scene, kind, reason):
    dlx = scene.exchange("dlx", "topic")
    sink = scene.sink(of=dlx, key="dead.*.#")
    other = scene.sink("other", of=dlx, key="alive.#")
    source = scene.source("source", reason, kind=kind, dlx=dlx, dlk="dead.order.7")
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key="dead.order.7")
    assert not other.arrived


def test_headers_exchange(scene, kind, reason):
    """Also by the headers that the death itself has written."""
    dlx = scene.exchange("dlx", "headers")
    mine = scene.sink("mine", of=dlx, args={"x-match": "all", "colour": "red"})
    theirs = scene.sink("theirs", of=dlx, args={"x-match": "all", "colour": "blue"})
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source, headers={"colour": "red", "size": 3})
    scene.kill(source, reason)
    check_death(scene, mine.one(), sent, source, reason, exchange=dlx, key=source)
    assert not theirs.arrived


def test_fanout_makes_one_copy_per_queue(scene, kind, reason):
    dlx = scene.exchange("dlx")
    sinks = [scene.sink(f"sink.{number}", of=dlx) for number in range(3)]
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    for sink in sinks:
        check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=source)


def test_alternate_exchange(scene, kind, reason):
    """2.3: it catches what the DLX does not route, and the dead letter shows the DLX."""
    alternate = scene.exchange("alternate")
    dlx = scene.exchange("dlx", "direct", alternate_exchange=alternate)
    sink = scene.sink(of=alternate)
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    sent = scene.publish("", source)
    scene.kill(source, reason)
    check_death(scene, sink.one(), sent, source, reason, exchange=dlx, key=source)


@pytest.mark.parametrize("what", ["exchange", "binding"])
def test_missing_then_made_later(scene, kind, reason, what):
    """2.3: a dead letter that nothing routes is parked (natively: discarded); the next one finds what was made since."""
    dlx = scene.name("dlx") if what == "exchange" else scene.exchange("dlx")
    sink = scene.sink()
    source = scene.source("source", reason, kind=kind, dlx=dlx)
    early = scene.publish("", source, body=b"early")
    scene.kill(source, reason)
    if scene.by(reason).parks:
        cause = "no_exchange" if what == "exchange" else "unroutable"
        expect_parked(scene, early, reason, died(source, reason), exchange=dlx, cause=cause)
    else:
        scene.fence(kind, reason)

    if what == "exchange":
        scene.exchange("dlx")
    scene.bind(sink.queue, dlx)
    late = scene.publish("", source, body=b"late")
    scene.kill(source, reason)
    check_death(scene, sink.one(), late, source, reason, exchange=dlx, key=source)


def test_purge_is_no_death(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    gone = [scene.publish("", source) for _ in range(3)]
    held = scene.get(source)
    assert scene.channel.queue_purge(source).method.message_count == 2
    scene.channel.basic_ack(held[0].delivery_tag)
    expect_only_the_next(scene, source, sink, gone)


def test_delete_is_no_death(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    gone = [scene.publish("", source) for _ in range(3)]
    scene.get(source)
    scene.channel.queue_delete(source)
    expect_only_the_next(scene, scene.queue("source", kind=kind, dlx=dlx), sink, gone)


def test_queue_expiry_is_no_death(scene, kind):
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, expires=300)
    gone = [scene.publish("", source) for _ in range(3)]
    # Asked by rabbitmqctl: a declare would renew the lease, and a publish into the moment of its end fails on some brokers.
    until(lambda: source not in scene.via.broker.ctl("-q", "list_queues", "-p", scene.via.vhost, "name"), f"{source} expired")
    expect_only_the_next(scene, scene.queue("source", kind=kind, dlx=dlx), sink, gone)


def expect_only_the_next(scene, source, sink, gone):
    """The next dead letter of `source` is the only one: none of `gone` came, none is parked."""
    sent = scene.publish("", source)
    scene.kill(source, "rejected")
    check_death(scene, sink.one(), sent, source, "rejected", exchange=sink_exchange(sink), key=source)
    for message in gone:
        scene.assert_not_parked(message)


def sink_exchange(sink):
    return sink.queue.removesuffix(".sink")
