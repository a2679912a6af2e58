"""Retries of a classic queue at the oldest broker, through the proxy, are those that a quorum queue of 4.3 has natively, but for DIFFERENCES."""

import copy
import datetime
import time
from dataclasses import dataclass

import pytest

from lab import Proxy, Via, until
from scene import every_property

pytestmark = [pytest.mark.proxied]

VHOST = "clients-natively"
MIN = 100
LIMIT = 2


# --- What may differ -----------------------------------------------------------------------------------------------------------------------

def acquired(seen):
    """Before 4.3 there was one number, of all returns."""
    acquired = seen["headers"].pop("x-acquired-count", None)
    seen["headers"].pop("x-delivery-count", None)
    if acquired:
        seen["headers"]["x-delivery-count"] = acquired


def of_the_dead(seen):
    """A dead letter is a new message: its counts begin anew."""
    if "x-death" in seen["headers"]:
        seen["headers"].pop("x-acquired-count", None)
        seen["headers"].pop("x-delivery-count", None)


def last_death(seen):
    """4.x says where a message died last; 3.10 only where it died first."""
    for name in ("exchange", "queue", "reason"):
        seen["headers"].pop(f"x-last-death-{name}", None)


def dead_redelivered(seen):
    """4.x reads a dead letter as redelivered, if a delivery of its message had failed; 3.10 does not."""
    if "x-death" in seen["headers"]:
        seen["redelivered"] = False


DIFFERENCES = [of_the_dead, acquired, last_death, dead_redelivered]
"""Each changes what a native consumer sees into what one behind the proxy does; its words are the reason. They are applied in this order."""


# --- The two sides -------------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def ways(request, tmp_path_factory):
    """To the oldest broker through a proxy; to 4.3 itself."""
    oldest, newest = request.config.brokers[0], request.config.brokers[-1]
    if not newest.version.startswith("4.3") or oldest == newest:
        pytest.skip("needs a broker of 4.3 and an older one")
    for broker in (oldest, newest):
        broker.make([VHOST], [], [(broker.user, VHOST, ".*", ".*", ".*")])
    proxy = Proxy(oldest.url, "takeover", tmp_path_factory.mktemp("proxy") / "natively.log", DLX_PROXY_VHOSTS=VHOST)
    ways = Via(oldest, "takeover", proxy), Via(newest, "direct")
    for way in ways:
        way.vhost = VHOST
    try:
        proxy.wait_ready()
        yield ways
        for way in ways:
            way.close()
    finally:
        proxy.stop()
        for broker in (oldest, newest):
            broker.unmake([VHOST], [])


@dataclass
class Queue:
    """A queue with retries on one side, and where its messages die."""

    way: object
    name: str
    kind: str

    def __post_init__(self):
        self.channel = self.way.connection.channel()
        self.channel.exchange_declare("in", "topic")
        self.channel.exchange_declare("dead", "fanout")
        self.channel.queue_declare("graves", durable=True)
        self.channel.queue_bind("graves", "dead")
        self.channel.queue_declare(self.name, durable=True, arguments={
            "x-queue-type": self.kind, "x-dead-letter-exchange": "dead", "x-delayed-retry-type": "all", "x-delayed-retry-min": MIN,
            "x-delivery-limit": LIMIT, "x-delivery-limit-counts": "failed"})  # The last one is unknown to brokers.
        self.channel.queue_bind(self.name, "in", f"{self.name}.#")

    def publish(self, body, **properties):
        everything = {"message_id": "an id", "headers": {"CC": [f"{self.name}-copy"], "text": "zwölf"}} | properties
        self.channel.basic_publish("in", f"{self.name}.key", body, every_property(self.way.broker.user, **everything))

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
        tag, seen = self.get("graves")
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

    def end(self):
        """Nothing is left, on its way or away."""
        for queue in (self.name, "graves"):
            assert self.channel.queue_delete(queue).method.message_count == 0
        self.channel.close()


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
    """What `deed(queue)` sees on both sides: what was seen by the proxy's consumer, and natively."""
    both = []
    for way, kind in zip(ways, ("classic", "quorum")):
        queue = Queue(way, "work", kind)
        both.append(deed(queue))
        queue.end()
    return both


def as_stated(native, used):
    """What the proxy's consumer has to see, if `native` is what others see; the differences that were of use are added to `used`."""
    expected = copy.deepcopy(native)
    for difference in DIFFERENCES:
        before = copy.deepcopy(expected)
        difference(expected)
        if expected != before:
            used.add(difference)
    return expected


def test_each_delivery_is_the_native_one(ways):
    used = set()
    for label, verbs in LOOPS.items():
        for message, properties in MESSAGES.items():
            def deed(queue):
                queue.publish(b"a body", **properties)
                return queue.loop(verbs)

            proxied, native = on_both(ways, deed)
            assert proxied == [as_stated(seen, used) for seen in native], f"{label}, {message}"
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
