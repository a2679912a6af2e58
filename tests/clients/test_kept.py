"""Queues whose dead-letter exchange only a policy of the proxy names, in mode `rejects-only`: the broker would discard what it was told to reject. So
nothing is lost here, whatever keeps the proxy from publishing; and nothing goes round more than a few times."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from lab import PATIENT, Proxy, until

pytestmark = [pytest.mark.once, pytest.mark.proxied]

VHOST = "clients-kept"
SMALL = 20
ROOM = 64 * 1024
POLICY = f"""
[[policy]]
name = "kept"
vhost = "{VHOST}"
pattern = "^source"
definition.dead-letter-exchange = ""
definition.dead-letter-routing-key = "dead"
"""


class World:
    """A vhost, a proxy with the policy, and the queue `source`, whose messages are looked at and counted at the broker itself."""

    def __init__(self, broker, folder, kind, policy):
        self.broker = broker
        broker.make([VHOST], [], [(broker.user, VHOST, ".*", ".*", ".*")])
        file = folder / "dlx-proxy.toml"
        file.write_text(policy)
        environment = {"DLX_PROXY_CONFIG": str(file), "DLX_PROXY_VHOSTS": VHOST, "DLX_PROXY_RETAINED_BYTES_PER_CONNECTION": str(ROOM)}
        self.proxy = Proxy(broker.url, "rejects-only", folder / "log", **environment)
        self.direct = self.connect(broker.address).channel()
        self.direct.queue_declare("dead", durable=True)
        self.proxy.wait_ready()
        self.client = self.connect(self.proxy.address)
        self.channel = self.client.channel()
        self.channel.queue_declare("source", durable=True, arguments={"x-queue-type": kind})
        self.direct.confirm_delivery()
        for number in range(SMALL):
            self.publish(b"%d" % number)

    def connect(self, address):
        return pika.BlockingConnection(pika.ConnectionParameters(*address, VHOST, self.broker.parameters.credentials, **PATIENT))

    def publish(self, body, queue="source"):
        self.direct.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))

    def depth(self, queue):
        return self.direct.queue_declare(queue, passive=True).method.message_count

    def are_back(self, queue):
        until(lambda: self.depth(queue) == SMALL, lambda: f"{self.depth(queue)} of {SMALL} are in {queue} again")

    def get(self, count, channel=None, queue="source"):
        """The tags of that many messages."""
        tags = []

        def look():
            if (got := (channel or self.channel).basic_get(queue))[0]:
                tags.append(got[0].delivery_tag)
            return len(tags) == count

        until(look, lambda: f"{len(tags)} of {count} messages", pause=0)
        return tags

    def metric(self, start):
        lines = self.proxy.get("/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(start))

    def bodies(self):
        """All that was dead-lettered, and has to be there once."""
        until(lambda: self.depth("dead") >= SMALL, lambda: f"{self.depth('dead')} dead letters")
        got = [self.direct.basic_get("dead", auto_ack=True)[2] for _ in range(self.depth("dead"))]
        return sorted(got, key=lambda body: int(body[:3]))

    def work(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.client.process_data_events(time_limit=0.05)

    @contextlib.contextmanager
    def alarm(self, tag):
        """The broker tells the publisher that it is blocked when it publishes: so one message is rejected."""
        with self.broker.under_memory_alarm():
            self.channel.basic_reject(tag, requeue=False)
            until(lambda: self.metric("dlx_proxy_publisher_blocked") == 1, "a publisher that is blocked")
            self.work(6)  # what comes now is refused at once
            yield

    def close(self):
        try:
            self.proxy.stop()
            self.direct.connection.close()
        finally:
            self.broker.unmake([VHOST], [])


@pytest.fixture
def world(via, tmp_path):
    made = []

    def make(kind, policy=POLICY):
        made.append(World(via.broker, tmp_path, kind, policy))
        return made[-1]

    yield make
    for each in made:
        each.close()


ALL = [b"%d" % number for number in range(SMALL)]
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@KINDS
def test_larger_than_the_budget(world, kind):
    world = world(kind)
    world.publish(b"x" * (2 * ROOM))
    seen = []

    def reject(channel, method, _properties, body):
        if len(body) > ROOM:
            seen.append(time.monotonic())
        channel.basic_reject(method.delivery_tag, requeue=False)

    world.channel.basic_consume("source", reject)
    until(lambda: len(seen) == 3, lambda: f"seen {len(seen)} times", pause=lambda: world.work(0.05))
    # At once, and after pauses of 1 and 2 s.
    assert all(after - before > pause for before, after, pause in zip(seen, seen[1:], (1, 2))), seen
    assert world.metric('dlx_proxy_events_total{event="kept_returned"}') == len(seen) - 1
    assert world.bodies() == ALL
    world.client.close()
    until(lambda: world.depth("source") == 1, lambda: f"{world.depth('source')} messages are left")


@KINDS
def test_an_alarm(world, kind):
    world = world(kind)
    world.publish(b"one more")
    tags = world.get(SMALL)
    with world.alarm(tags[0]):
        for tag in tags[1:]:
            world.channel.basic_reject(tag, requeue=False)
        until(lambda: world.metric("dlx_proxy_rejects_kept_total") >= SMALL - 1, "that many rejects are kept")
        # A later `multiple` does not settle them.
        world.channel.basic_ack(world.get(1)[0], multiple=True)
        world.work(3)
        assert world.metric("dlx_proxy_withheld_rejects") == SMALL
    assert world.bodies() == ALL
    world.client.close()
    assert world.depth("source") == 0


def test_the_end_amid_an_alarm(world):
    """Whatever ends while rejects are withheld: their messages are in their queue again. Each end has a client and a queue of its own."""
    world = world("quorum")
    clients = {}
    for how in "channel", "connection", "vanish", "drain":
        connection = world.connect(world.proxy.address)
        channel, queue = connection.channel(), f"source-{how}"
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        for number in range(SMALL):
            world.publish(b"%d" % number, queue)
        clients[how] = connection, channel, world.get(SMALL, channel, queue)
    with world.alarm(world.get(1)[0]), ThreadPoolExecutor() as pool:
        for _, channel, tags in clients.values():
            for tag in tags:
                channel.basic_reject(tag, requeue=False)
        until(lambda: world.metric("dlx_proxy_rejects_kept_total") >= len(clients) * SMALL, "that many rejects are kept")
        closed = [pool.submit(clients["channel"][1].close), pool.submit(clients["connection"][0].close)]
        clients["vanish"][0]._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        for how in "channel", "connection", "vanish":
            world.are_back(f"source-{how}")
        for each in closed:
            each.result()
        assert world.depth("source-drain") == 0
        world.proxy.process.terminate()
        world.are_back("source-drain")
        world.proxy.process.wait()
    # What was published before the alarm reached the proxy is in both: at least once.
    until(lambda: world.depth("source") + world.depth("dead") >= SMALL, lambda: f"{world.depth('source')} are back")


@KINDS
def test_in_a_transaction(world, kind):
    """Nothing is published. What the broker would discard returns with the commit, not often; near a limit on deliveries it stays."""
    world = world(kind)
    world.channel.tx_select()
    tags = world.get(SMALL)
    world.channel.basic_nack(tags[-1], multiple=True, requeue=False)
    world.channel.tx_rollback()
    world.channel.basic_nack(tags[-1], multiple=True, requeue=False)
    began = time.monotonic()
    world.channel.tx_commit()
    assert time.monotonic() - began > 0.9, "a commit waits that returns messages"
    for _ in range(6):
        frame, _, _ = world.channel.basic_get("source")
        if frame:
            world.channel.basic_reject(frame.delivery_tag, requeue=False)
            world.channel.tx_commit()
    world.client.close()
    world.are_back("source")
    assert world.depth("dead") == 0
    assert world.metric('dlx_proxy_events_total{event="kept_returned"}') >= SMALL
