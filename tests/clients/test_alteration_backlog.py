"""Messages that nobody reads while their queue is made anew: they are moved aside, and back."""

import threading
import time

import pika
import pytest

from console import management
from lab import until
from scene import PREFIX, one_of
from test_alteration import Load, altered, altering, left, names, queue_of  # noqa: F401
from test_adoption import queues

SHAPES = [
    {},
    {"expiration": "3600000", "priority": 3},
    {"headers": {"CC": ["also"], "mine": [1, {"two": None}]}, "content_type": "text/plain"},
    {"headers": {"BCC": ["hidden"], "x-death": "not one"}, "user_id": "guest", "message_id": "m", "timestamp": 1},
]


def shown(message):
    """What a consumer sees of it."""
    seen = vars(message.properties) | {"headers": message.properties.headers or None}
    return message.method.exchange, message.method.routing_key, message.body, seen


def filled(own, name, number):
    """A topic exchange that leads to the queue, which has so many messages of all shapes; and what their consumer is to see."""
    exchange = own.exchange("shop", "topic")
    own.bind(name, exchange, "order.#")
    for at in range(number):
        own.publish(exchange, f"order.{at}", b"%d" % at, **SHAPES[at % len(SHAPES)])
    until(lambda: own.depth(name) == number, lambda: own.depth(name))
    return exchange


def aside(own, name):
    """How many messages of the queue wait aside; None: there is no queue for them."""
    try:
        return own.depth(f"{PREFIX}.aside/{name}")
    except pika.exceptions.ChannelClosedByBroker:
        return None


@pytest.mark.parametrize("kinds", [("classic", "classic"), ("quorum", "quorum"), ("classic", "quorum")], ids="-".join)
def test_a_backlog_is_moved_aside_and_back(altering, kinds):  # noqa: F811
    own = altering
    before, after = kinds
    untouched, name = own.queue("untouched", kind=after), own.made("orders", kind=before, max_length=100_000)
    other = own.exchange("other", "topic")
    own.bind(untouched, other, "order.#")
    number = 600
    exchange = filled(own, name, number)
    for at in range(len(SHAPES)):
        own.publish(other, f"order.{at}", b"%d" % at, **SHAPES[at])
    expected = {shown[2]: shown[3] for shown in (shown(one_of(own.channel, untouched, auto_ack=True)) for _ in SHAPES)}
    change = ("--unset", "x-max-length", *(("--type", after) if before != after else ()))
    said = altered(own, name, *change)
    assert f"Moved aside and back: {number} messages." in said and queue_of(own, name)["type"] == after, said
    assert not left(own)
    came = [shown(one_of(own.channel, name, auto_ack=True)) for _ in range(number)]
    assert own.depth(name) == 0
    for at in range(len(SHAPES)):
        # A quorum queue of 4.3 gives those of one priority before those of another.
        of_shape = [one for one in came if int(one[2]) % len(SHAPES) == at]
        assert of_shape == [(exchange, f"order.{one}", b"%d" % one, expected[b"%d" % at]) for one in range(at, number, len(SHAPES))]


def test_clients_of_a_backlog_go_on_behind_it(altering):  # noqa: F811
    """A publisher and a consumer that is too slow for it."""
    own = altering
    name = own.made("orders", max_length=100_000)
    exchange = filled(own, name, 2000)
    own.channel.basic_qos(prefetch_count=1)
    with Load(own.via, name, exchange, "order.new", consumers=0) as load:
        until(lambda: load.sent > 50 or load.errors, "messages")
        own.channel.basic_consume(name, lambda *_: None)
        # It settles nothing.
        said = altered(own, name, "--unset", "x-max-length", "--wait", "4s", code=1)
        assert "It is as it was" in said, said
        own.channel.close()
        said = altered(own, name, "--unset", "x-max-length", "--wait", "30s")
        assert "Moved aside and back" in said, said
        sent = load.sent
        until(lambda: load.sent > sent + 50 or load.errors, "more messages")
    assert not load.errors
    bodies = [int(message.body) for message in own.all_of(name, 2000 + load.sent)]
    assert bodies == [*range(2000), *range(load.sent)]


def test_a_backlog_that_is_too_large_stays(altering):  # noqa: F811
    own = altering
    name = own.made("orders", max_length=1000)
    filled(own, name, 20)
    change = ("--unset", "x-max-length", "--max-pause", "1s", "--wait", "1s")
    assert "20 messages are ready" in altered(own, name, *change, code=1)
    words = "20 messages are ready, and nobody reads them: clients would wait for about 2 s"
    until(lambda: words in queues(own, "alter", name, *change, "--dry-run", code=None), words, pause=0.5)
    assert own.depth(name) == 20 and not left(own)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_proxy_that_is_killed_while_it_moves_a_backlog_loses_nothing(altering, kind):  # noqa: F811
    own = altering
    name = own.made("orders", kind=kind, max_length=100_000)
    number = 3000
    filled(own, name, number)
    is_anew = lambda: "x-max-length" in queue_of(own, name)["arguments"]
    for change, is_there in [
        (("--unset", "x-max-length"), lambda: (aside(own, name) or 0) > number // 3),
        (("--set", "x-max-length=100000"), lambda: 0 < (aside(own, name) or 0) < number // 3 and is_anew()),
    ]:
        moving = threading.Thread(target=queues, args=(own, "alter", name, *change, "--approve"), kwargs={"code": None})
        moving.start()
        end = time.monotonic() + 10
        while moving.is_alive() and time.monotonic() < end and not is_there():
            pass
        own.proxy.kill()
        moving.join()
        own.restart(management_url=management(own.via))
        own.channel
        until(lambda: not left(own), lambda: names(own))
    bodies = {int(message.body) for message in own.all_of(name, number)}
    assert bodies == set(range(number))


def test_an_alarm_while_a_backlog_is_moved_loses_nothing(altering):  # noqa: F811
    """Clients go on, and what waits aside comes back, when the alarm is over."""
    own = altering
    name = own.made("orders", max_length=100_000)
    number = 5000
    exchange = filled(own, name, number)
    moving = threading.Thread(target=altered, args=(own, name, "--unset", "x-max-length"), kwargs={"code": None})
    moving.start()
    until(lambda: (aside(own, name) or 0) > 100 or not moving.is_alive(), "it moves", pause=0)
    with own.via.broker.under_memory_alarm():
        own.proxy.says("the broker has an alarm")
    moving.join()
    own.channel.queue_bind(name, exchange, "more")
    until(lambda: not left(own), lambda: names(own))
    bodies = [int(message.body) for message in own.all_of(name, number)]
    assert sorted(set(bodies)) == list(range(number))
