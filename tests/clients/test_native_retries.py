"""Retries of a classic queue at the oldest broker, through the proxy, are those that a quorum queue of 4.3 has natively, but for DIFFERENCES."""

import copy
import datetime
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from lab import Via, until
from scene import every_property

pytestmark = [pytest.mark.proxied, pytest.mark.once]

VHOST = "clients-natively"
MIN = 50
LIMIT = 2


# --- What may differ -----------------------------------------------------------------------------------------------------------------------

def acquired(seen):
    """Before 4.3 there was one number, of all returns."""
    acquired = seen["headers"].pop("x-acquired-count", None)
    seen["headers"].pop("x-delivery-count", None)
    if acquired:
        seen["headers"]["x-delivery-count"] = acquired


def last_death(seen):
    """4.x says where a message died last; 3.10 only where it died first."""
    for name in ("exchange", "queue", "reason"):
        seen["headers"].pop(f"x-last-death-{name}", None)


def dead_redelivered(seen):
    """4.x reads a dead letter as redelivered, if a delivery of its message had failed; 3.10 does not."""
    if "x-death" in seen["headers"]:
        seen["redelivered"] = False


DIFFERENCES = [acquired, last_death, dead_redelivered]
"""Each changes what a native consumer sees into what one behind the proxy does; its words are the reason. Of order there is one
more, at the end."""


# --- The two sides -------------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def ways(request, via):
    """To the oldest broker through the proxy; to 4.3 itself."""
    oldest, newest = request.config.brokers[0], request.config.brokers[-1]
    if via.broker is not oldest or oldest is newest or not newest.is_from(4, 3):
        pytest.skip("compares the oldest broker with one from 4.3 on, once")
    newest.make([VHOST], [], [(newest.user, VHOST, ".*", ".*", ".*")])
    native = Via(newest, "direct")
    native.vhost = VHOST
    yield via, native
    native.close()
    newest.unmake([VHOST], [])


@dataclass
class Queue:
    """A queue with retries on one side, and where its messages die."""

    way: object
    kind: str
    name = "natively-work"
    graves, source, dead = "natively-graves", "natively-in", "natively-dead"

    def __enter__(self):
        self.channel = self.way.connection.channel()
        self.channel.exchange_declare(self.source, "topic")
        self.channel.exchange_declare(self.dead, "fanout")
        self.channel.queue_declare(self.graves, durable=True)
        self.channel.queue_bind(self.graves, self.dead)
        self.channel.queue_declare(self.name, durable=True, arguments={
            "x-queue-type": self.kind, "x-dead-letter-exchange": self.dead, "x-delayed-retry-type": "all", "x-delayed-retry-min": MIN,
            "x-delivery-limit": LIMIT, "x-delivery-limit-counts": "failed"})  # The last one is unknown to brokers.
        self.channel.queue_bind(self.name, self.source, "a.#")
        return self

    def __exit__(self, kind, *_):
        left = [self.channel.queue_delete(queue).method.message_count for queue in (self.name, self.graves)]
        for exchange in (self.source, self.dead):
            self.channel.exchange_delete(exchange)
        self.channel.close()
        assert kind or left == [0, 0]

    def publish(self, body, **properties):
        everything = {"message_id": "an id", "headers": {"CC": ["a-copy"], "text": "zwölf"}} | properties
        self.channel.basic_publish(self.source, "a.key", body, every_property(self.way.broker.user, **everything))

    def get(self, queue=None):
        """The next message: its tag, and all that its consumer sees."""
        got = until(lambda: next((got for got in [self.channel.basic_get(queue or self.name)] if got[0]), None), f"a message in {queue or self.name}")
        method, properties, body = got
        headers = copy.deepcopy(properties.headers)
        for death in headers.get("x-death", []):
            assert isinstance(death.pop("time"), datetime.datetime)
        rest = {name: value for name, value in vars(properties).items() if name != "headers"}
        return method.delivery_tag, {
            "exchange": method.exchange, "key": method.routing_key, "redelivered": method.redelivered, "body": body, "headers": headers,
            "properties": rest}

    def grave(self):
        """What died, which is settled at once."""
        tag, seen = self.get(self.graves)
        self.channel.basic_ack(tag)
        return seen

    def settle(self, tag, verb):
        method, requeue = {"nack": ("basic_nack", True), "reject": ("basic_reject", True), "kill": ("basic_reject", False), "ack": ("basic_ack", None)}[verb]
        getattr(self.channel, method)(tag, **({} if requeue is None else {"requeue": requeue}))

    def loop(self, verbs):
        """Settles one message with each of these; all that was seen of it, to the end."""
        seen, returned = [], None
        for verb in verbs:
            tag, delivery = self.get()
            assert returned is None or time.monotonic() - returned >= MIN / 1000, "never early"
            seen.append(delivery)
            returned = time.monotonic()
            self.settle(tag, verb)
        return seen + ([] if verbs[-1] == "ack" else [self.grave()])


LOOPS = {
    "rejected to the end": ["reject"] * 3,
    "nacks count for nobody": ["nack"] * 4 + ["reject"] * 3,
    "in turns": ["reject", "nack", "reject", "nack", "reject"],
    "acked in the end": ["nack", "reject", "ack"],
    "killed in the end": ["reject", "nack", "kill"],
    "killed at once": ["kill"],
}
MESSAGES = {"with all properties": {}, "with a TTL": {"expiration": "600000"}, "with few": {"headers": {"n": 1}, "user_id": None, "priority": None}}


def on_both(ways, deed):
    """What `deed(queue)` sees through the proxy, and natively."""

    def on(way, kind):
        with Queue(way, kind) as queue:
            return deed(queue)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(on, ways, ("classic", "quorum")))


def as_stated(native, used):
    """What the proxy's consumer has to see, if `off` is what others see; the differences that were of use are added to `used`."""
    expected = copy.deepcopy(native)
    for difference in DIFFERENCES:
        before = copy.deepcopy(expected)
        difference(expected)
        if expected != before:
            used.add(difference)
    return expected


def test_each_delivery_is_the_native_one(ways):
    cases = [(verbs, properties) for verbs in LOOPS for properties in MESSAGES]

    def deed(queue):
        seen = []
        for verbs, properties in cases:
            queue.publish(b"a body", **MESSAGES[properties])
            seen.append(queue.loop(LOOPS[verbs]))
        return seen

    used = set()
    for case, proxied, native in zip(cases, *on_both(ways, deed), strict=True):
        assert proxied == [as_stated(seen, used) for seen in native], case
    assert used == set(DIFFERENCES), "a stated difference is there no more"


def test_native_retries_come_back_in_front(ways):
    """The one difference of order: natively what was away is served before what never was, through the proxy it is put at the tail."""

    def deed(queue):
        for body in (b"first", b"second", b"third"):
            queue.publish(body)
        tags = [queue.get()[0] for _ in range(2)]
        queue.settle(tags[0], "reject")
        passive = lambda: queue.channel.queue_declare(queue.name, passive=True).method.message_count
        until(lambda: passive() == 2, "it is back")
        queue.settle(tags[1], "ack")
        rest = [queue.get() for _ in range(2)]
        for tag, _ in rest:
            queue.settle(tag, "ack")
        return [seen["body"] for _, seen in rest]

    assert on_both(ways, deed) == [[b"third", b"first"], [b"first", b"third"]]
