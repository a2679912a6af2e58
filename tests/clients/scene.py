"""A scene: the queues and exchanges of one test, under names of its own, and the little that tests do with them."""

import datetime
import itertools
from dataclasses import dataclass
from decimal import Decimal

import pika

from lab import until

ARGUMENTS = {
    "kind": "x-queue-type", "dlx": "x-dead-letter-exchange", "dlk": "x-dead-letter-routing-key", "ttl": "x-message-ttl",
    "expires": "x-expires", "max_length": "x-max-length", "max_bytes": "x-max-length-bytes", "overflow": "x-overflow",
    "limit": "x-delivery-limit", "strategy": "x-dead-letter-strategy", "max_priority": "x-max-priority", "single_active": "x-single-active-consumer",
    "retry_type": "x-delayed-retry-type", "retry_min": "x-delayed-retry-min", "retry_max": "x-delayed-retry-max",
    "multiplier": "x-delayed-retry-multiplier", "counts": "x-delivery-limit-counts",
}
"""Short names for the arguments of a queue."""

HEADERS = {
    "text": "zwölf", "bytes": b"\x00\xff", "small": 7, "negative": -1, "large": 2**40, "true": True, "false": False,
    "nothing": None, "price": Decimal("19.99"), "list": [1, "two", [-3], {"four": 4}],
    "time": datetime.datetime(2020, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc), "table": {"deep": {"deeper": [b"x"]}},
}
"""A header of every type that pika can write (test_bytes.py has all that AMQP knows)."""

_numbers = itertools.count(1)


def arguments(**short):
    return {ARGUMENTS[name]: value for name, value in short.items() if value is not None}


def every_property(user, **overrides):
    """A message with all basic properties set."""
    return pika.BasicProperties(**{
        "content_type": "text/plain", "content_encoding": "utf-8", "headers": dict(HEADERS), "delivery_mode": 2, "priority": 3,
        "correlation_id": "correlation", "reply_to": "answers", "message_id": f"message-{next(_numbers)}", "timestamp": 1_600_000_000,
        "type": "order", "user_id": user, "app_id": "tests", "cluster_id": "cluster", **overrides,
    })


@dataclass
class Sent:
    """A message as its client published it."""

    properties: object
    body: bytes

    @property
    def id(self):
        return self.properties.message_id


class Sink:
    """A queue where dead letters arrive, and its consumer, which takes them as they come."""

    def __init__(self, connection, queue):
        self.connection, self.queue = connection, queue
        self.arrived = []
        self.channel = connection.channel()
        self.channel.basic_consume(queue, self._arrive, auto_ack=True)

    def _arrive(self, _channel, method, properties, body):
        self.arrived.append((method, properties, body))

    def wait(self, condition, what=""):
        """As long as something comes."""
        work = lambda: self.connection.process_data_events(time_limit=0.05)
        count = lambda: len(self.arrived)
        until(lambda: condition(self.arrived), lambda: f"{what} in {self.queue}; {count()} arrived", pause=work, progress=count)

    def take(self, count=1):
        """The next `count` messages."""
        self.wait(lambda arrived: len(arrived) >= count, f"{count} messages")
        taken, self.arrived[:] = self.arrived[:count], self.arrived[count:]
        return taken

    def one(self):
        """The next message, which has to be the only one that is there."""
        (got,) = self.take()
        assert not self.arrived, f"more than one: {self.arrived}"
        return got


class Scene:
    def __init__(self, via, prefix):
        self.via, self.prefix = via, f"{prefix}.{next(_numbers)}"
        self.queues, self.exchanges = [], []
        self._channel = None

    @property
    def connection(self):
        return self.via.connection

    @property
    def channel(self):
        """The channel of this test on the shared connection."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self.connection.channel()
        return self._channel

    def parks(self, reason):
        """Is what nothing routes parked? With `rejects-only` the broker discards what died by itself."""
        return self.via.mode == "full" or (self.via.mode == "rejects-only" and reason == "rejected")

    def name(self, label):
        return f"{self.prefix}.{label}"

    def queue(self, label, *, channel=None, durable=True, exclusive=False, auto_delete=False, **short):
        name = self.name(label)
        (channel or self.channel).queue_declare(
            name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments(**short))
        if name not in self.queues:
            self.queues.append(name)
        return name

    def exchange(self, label, kind="fanout", *, internal=False, channel=None, **args):
        name = self.name(label)
        (channel or self.channel).exchange_declare(
            name, kind, durable=True, internal=internal, arguments={key.replace("_", "-"): value for key, value in args.items()})
        self.exchanges.append(name)
        return name

    def bind(self, queue, exchange, key="", args=None):
        self.channel.queue_bind(queue, exchange, key, args)

    def sink(self, label="sink", *, of=None, key="", args=None, kind="classic"):
        """A sink under `label`, bound to the exchange `of` if one is given."""
        queue = self.queue(label, kind=kind)
        if of:
            self.bind(queue, of, key, args)
        return Sink(self.connection, queue)

    def target(self, label="dlx"):
        """The usual target: a fanout exchange with one sink behind it."""
        dlx = self.exchange(label)
        return dlx, self.sink(f"{label}.sink", of=dlx)

    def publish(self, exchange, key, body=b"a body", *, channel=None, mandatory=False, **properties):
        properties = every_property(self.via.broker.user, **properties)
        sent = Sent(properties, body)
        (channel or self.channel).basic_publish(exchange, key, body, properties, mandatory)
        return sent

    def get(self, queue, channel=None):
        """basic.get until there is something."""
        return until(lambda: next((got for got in [(channel or self.channel).basic_get(queue)] if got[0]), None), f"a message in {queue}")

    def depth(self, queue):
        """Ready messages in the queue."""
        return self.channel.queue_declare(queue, passive=True).method.message_count

    def source(self, label, reason, **short):
        """A queue whose messages die for `reason`: at once by TTL, or by `kill`."""
        return self.queue(label, **({"ttl": 1} if reason == "expired" else {}), **short)

    def kill(self, queue, reason):
        """Let the message at the head of a `source` die."""
        if reason == "rejected":
            self.channel.basic_reject(self.get(queue)[0].delivery_tag, requeue=False)

    def parked(self, sent):
        """The copy of `sent` in the parking queue, once it is there."""
        return until(lambda: self.via.parked(sent.id), lambda: f"{sent.id} parked")

    def assert_not_parked(self, sent):
        assert not self.via.parked(sent.id)

    def close(self):
        """Delete all that the test made, on the broker itself."""
        if self.via.connection.is_open and self._channel and self._channel.is_open:
            self._channel.close()
        channel = self.via.direct.channel()
        for queue in self.queues:
            try:
                channel.queue_delete(queue)
            except pika.exceptions.ChannelClosedByBroker as refusal:  # exclusive: it goes with its connection
                assert refusal.reply_code == 405, refusal
                channel = self.via.direct.channel()
        for exchange in self.exchanges:
            channel.exchange_delete(exchange)
        channel.close()
