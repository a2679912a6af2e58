"""A scene: the queues and exchanges of one test, under names of its own, and the little that tests do with them."""

import contextlib
import json
from collections import namedtuple

import pika
import pytest

from lab import DEADLINE, Proxy, Via, environment, until

ARGUMENTS = {
    "kind": "x-queue-type", "dlx": "x-dead-letter-exchange", "dlk": "x-dead-letter-routing-key", "ttl": "x-message-ttl",
    "max_length": "x-max-length", "overflow": "x-overflow", "limit": "x-delivery-limit", "strategy": "x-dead-letter-strategy",
    "max_priority": "x-max-priority", "single_active": "x-single-active-consumer", "retry_type": "x-delayed-retry-type",
    "retry_min": "x-delayed-retry-min", "multiplier": "x-delayed-retry-multiplier",
    "delays": "x-delayed-retry-delays", "counts": "x-delivery-limit-counts",
    "consumer_timeout": "x-consumer-timeout", "ack_timeout": "x-ack-timeout",
}
"""Short names for the arguments of a queue."""

PREFIX = "own"
INTAKE, PARKED = f"{PREFIX}.intake", f"{PREFIX}.parked"
TARGETS = "x-dead-letter-exchange,x-dead-letter-routing-key"
"""The setting `lenient` for declares that change where dead letters go."""
"""Names of a proxy of a test's own."""

Message = namedtuple("Message", "method properties body")


def arguments(**short):
    return {ARGUMENTS.get(name, name): value for name, value in short.items() if value is not None}


def one_of(channel, queue, auto_ack=False):
    """The next message of the queue."""
    return until(lambda: next((Message(*got) for got in [channel.basic_get(queue, auto_ack)] if got[0]), None), f"a message in {queue}")


def policies(file, vhost, **rules):
    """A settings file with policies of the proxy: name = (pattern, definition)."""
    lines = []
    for name, (pattern, definition) in rules.items():
        lines += ["[[policy]]", f'name = "{name}"', f'vhost = "{vhost}"', f"pattern = '{pattern}'"]
        lines += [f"{key} = {json.dumps(definition.pop(key))}" for key in ("mode", "overrules-arguments") if key in definition]
        lines += ["[policy.definition]", *(f"{key} = {json.dumps(value)}" for key, value in definition.items())]
    file.write_text("\n".join(lines))
    return file


class Scene:
    def __init__(self, via, prefix):
        self.via, self.prefix = via, prefix
        self.queues, self.exchanges = [], []
        self._channel = None

    @property
    def connection(self):
        return self.via.connection

    @property
    def channel(self):
        """The channel of this test on the connection through the proxy."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self.connection.channel()
        return self._channel

    def name(self, label):
        return f"{self.prefix}-{label}"

    def queue(self, label, *, channel=None, durable=True, exclusive=False, auto_delete=False, **short):
        name = self.name(label)
        self.queues.append(name)
        (channel or self.channel).queue_declare(name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments(**short))
        return name

    def made(self, label, **short):
        """A queue that no proxy has seen declared."""
        with self.via.direct.channel() as channel:
            return self.queue(label, channel=channel, **short)

    def exchange(self, label, kind="fanout", *, channel=None, **more):
        name = self.name(label)
        self.exchanges.append(name)
        (channel or self.channel).exchange_declare(name, kind, durable=True, **more)
        return name

    def bind(self, queue, exchange, key=""):
        self.channel.queue_bind(queue, exchange, key)

    def publish(self, exchange, key, body=b"a body", *, channel=None, **properties):
        (channel or self.channel).basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties))

    def fill(self, queue, bodies, **properties):
        """Publishes into an empty queue, and waits until all are there."""
        with self.via.direct.channel() as channel:
            for body in bodies:
                self.publish("", queue, body, channel=channel, **properties)
            self.has(queue, len(bodies))
        return queue

    def get(self, queue, channel=None):
        return one_of(channel or self.channel, queue)

    def reject(self, queue, count=1, channel=None):
        for _ in range(count):
            (channel or self.channel).basic_reject(self.get(queue, channel).method.delivery_tag, requeue=False)

    def give_back(self, queue):
        """Returns the next message: what there is to see of it."""
        message = self.get(queue)
        self.channel.basic_nack(message.method.delivery_tag, requeue=True)
        return message

    def die(self, queue, *bodies, **properties):
        """Messages that a client rejects."""
        for body in bodies or [b"a body"]:
            self.publish("", queue, body, **properties)
            self.reject(queue)

    def depth(self, queue):
        """Ready messages in the queue."""
        with self.via.direct.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def has(self, queue, count):
        """Waits until that many messages are ready in the queue."""
        until(lambda: self.depth(queue) == count, lambda: f"{self.depth(queue)} of {count} in {queue}", progress=lambda: self.depth(queue))

    def all_of(self, queue, count):
        """Takes what is in the queue, at the broker itself, once there are so many."""
        until(lambda: self.depth(queue) >= count, lambda: f"{self.depth(queue)} of {count} in {queue}", progress=lambda: self.depth(queue))
        there, got = self.depth(queue), []
        with self.via.direct.channel() as channel:
            while len(got) < there:
                got.append(Message(*next(channel.consume(queue, auto_ack=True, inactivity_timeout=DEADLINE))))
                assert got[-1].method, f"{len(got) - 1} of {there} from {queue}"
            channel.cancel()
        return got

    def close(self):
        """Delete all that the test made, on the broker itself."""
        if self._channel and self._channel.is_open and self.connection.is_open:
            self._channel.close()
        channel = self.via.direct.channel()
        for queue in set(self.queues):
            try:
                channel.queue_delete(queue)
            except pika.exceptions.ChannelClosedByBroker as refusal:  # exclusive: it goes with its connection
                assert refusal.reply_code == 405, refusal
                channel = self.via.direct.channel()
        for exchange in self.exchanges:
            channel.exchange_delete(exchange)
        channel.close()


class Own(Scene):
    """A scene with a proxy of its own, and names of its own: what is done to its intake is nothing for the neighbours."""

    def __init__(self, via, log, user=None, **settings):
        super().__init__(Via(via.broker, vhost=via.vhost), PREFIX)
        self.log, self.upstream, self.address = log, None, via.broker.address
        try:
            self.start(user, **settings)
        except BaseException:
            if self.proxy:
                self.stop()
            raise

    def start(self, user=None, **settings):
        """Once more, with these settings alone, as the administrator or another user."""
        broker = self.via.broker
        login = (user, "secret") if user else (broker.user, broker.parameters.credentials.password)
        self.upstream = "amqp://%s:%s@%s:%d" % (*login, *self.address)
        self.via.proxy = self.another(self.log, **settings)
        until(lambda: self.metric("dlx_proxy_intake_consuming") == 1, self.proxy.text)

    def another(self, log, **settings):
        """A proxy with its names before its broker."""
        settings = {"prefix": PREFIX, "vhosts": self.via.vhost} | settings
        proxy = Proxy(self.upstream, settings.pop("mode", "full"), log, **environment(**settings))
        try:
            proxy.wait_ready()
        except BaseException:
            proxy.stop()
            raise
        return proxy

    @property
    def proxy(self):
        return self.via.proxy

    def stop(self):
        self.via.close()
        self._channel = None
        self.proxy.stop()

    def restart(self, user=None, **settings):
        self.stop()
        self.start(user, **settings)

    def metric(self, name, **labels):
        """Of this vhost."""
        return self.proxy.metric(name, vhost=self.via.vhost, **labels)

    def parked(self, count):
        """So many messages, once they are parked."""
        return self.all_of(PARKED, count)

    def delete(self, *queues, exchanges=()):
        """By other hands: past the proxy."""
        with self.via.direct.channel() as channel:
            for queue in queues:
                channel.queue_delete(queue)
            for exchange in exchanges:
                channel.exchange_delete(exchange)

    def close(self):
        self.stop()
        broker, vhost = self.via.broker, self.via.vhost
        mine = [queue for queue in broker.queues(vhost) if queue.startswith(PREFIX)]
        self.delete(*mine, exchanges=[exchange for exchange in broker.exchanges(vhost) if exchange.startswith(PREFIX)])
        self.via.close()


@pytest.fixture
def own(via, request, tmp_path):
    """`indirect` parameters are settings: {"intake_queue_type": "classic"}."""
    own = Own(via, tmp_path / "log", **getattr(request, "param", {}))
    yield own
    own.close()


@contextlib.contextmanager
def broker_policy(scene, name, pattern, definition, priority=0, apply_to="queues"):
    broker, vhost = scene.via.broker, scene.via.vhost
    broker.set_policy(vhost, name, pattern, definition, priority, apply_to)
    try:
        yield
    finally:
        broker.clear_policy(vhost, name)


@contextlib.contextmanager
def user(via, name, configure=".*", write=".*", read=".*", topics=None):
    """A user of that name, for a while; `topics` is (exchange, pattern)."""
    via.broker.make([], [(name, "secret")], [(name, via.vhost, configure, write, read)])
    if topics:
        via.broker.permit_topic(via.vhost, name, *topics)
    try:
        yield name
    finally:
        via.broker.unmake([], [name])
