"""Clients that publish and reject through proxies or past them, come back whenever they are cut off, and keep books."""

import itertools
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pika
from lab import DEADLINE, until

DURABLE = pika.BasicProperties(delivery_mode=2)
CUT = (pika.exceptions.AMQPError, OSError)
QUORUM = {"x-queue-type": "quorum"}
SILENCE = 20
"""How many seconds a publisher has for its next confirms once a fault is over, before it gives up."""
MARGIN = 1
"""What was confirmed so many seconds before a fault has been moved by then; and so many after it the broker moves what expires again."""


class Direct:
    """In the place of a proxy: the nodes themselves, each time the next one, as a client takes them that knows them all."""

    def __init__(self, cluster, tls=False):
        self._turn = itertools.cycle(cluster.tls_addresses if tls else cluster.addresses)
        self.trust = cluster.trust() if tls else None

    @property
    def address(self):
        host, port = next(self._turn).split(":")
        return host, int(port)


class Unanswered(Exception):
    """A publish is neither confirmed nor nacked, and its client waits no longer."""


class Client(threading.Thread):
    """One that always has a connection, or wants one."""

    def __init__(self, proxy, vhost):
        super().__init__(daemon=True)
        self.proxy, self.vhost = proxy, vhost
        self.connections, self.lost, self.refused, self.unanswered = 0, [], [], 0
        self.ends = []
        """How each connection that was cut off went: when it was opened and cut off, and what the client was told."""
        self.reset = "SSLEOFError" if proxy.trust else "ConnectionResetError"
        self.over = threading.Event()
        self.failure = None

    def connect(self):
        host, port = self.proxy.address
        login = pika.PlainCredentials("guest", "guest")
        options = {"heartbeat": 6, "socket_timeout": 15, "stack_timeout": 15, "blocked_connection_timeout": 15}
        if self.proxy.trust:
            options["ssl_options"] = pika.SSLOptions(self.proxy.trust, "localhost")
        return pika.BlockingConnection(pika.ConnectionParameters(host, port, self.vhost, login, **options))

    def run(self):
        try:
            while not self.over.is_set():
                try:
                    connection = self.connect()
                except CUT as refusal:
                    self.refused.append(repr(refusal))
                    time.sleep(0.2)
                    continue
                self.connections += 1
                opened = time.monotonic()
                try:
                    try:
                        self.work(connection)
                    except Unanswered:
                        self.unanswered += 1
                    connection.close()
                except CUT as cut:
                    if not self.over.is_set():
                        self.lost.append(repr(cut))
                        self.ends.append(f"{opened:.3f}-{time.monotonic():.3f} {cut!r}")
                        time.sleep(0.05)
        except BaseException as failure:
            self.failure = failure
            raise

    def end(self):
        self.over.set()
        self.join(60)
        assert not self.is_alive(), f"{self} does not end: {self.lost[-3:]} {self.refused[-3:]}"
        assert self.failure is None, self.failure


class Publisher(Client):
    """Publishes numbers into each queue in turn, each as soon as the one before is confirmed."""

    def __init__(self, proxy, vhost, first, queues):
        super().__init__(proxy, vhost)
        self.number, self.queues = first, queues
        self.confirmed = {queue: {} for queue in queues}
        """Numbers, and when each was confirmed."""
        self.connection = None

    def work(self, connection):
        self.connection = connection
        channel = connection.channel()
        channel.confirm_delivery()
        for queue, arguments in self.queues.items():
            channel.queue_declare(queue, durable=True, arguments=arguments)
        while not self.over.is_set():
            for queue in self.queues:
                self.number += 1
                try:
                    channel.basic_publish("", queue, b"%d" % self.number, DURABLE, mandatory=True)
                except (pika.exceptions.NackError, pika.exceptions.UnroutableError):
                    continue
                self.confirmed[queue][self.number] = time.monotonic()
            connection.sleep(0.005)

    def confirms(self):
        """How many there were."""
        return sum(map(len, self.confirmed.values()))

    def give_up(self):
        """Called by another thread: the publish under way is given up, and the client connects anew. pika's own `add_callback_threadsafe` is heard
        only between two publishes."""

        def leave():
            raise Unanswered

        if self.connection:
            self.connection._impl.ioloop.add_callback_threadsafe(leave)


class Rejecter(Client):
    """Rejects whatever comes."""

    def __init__(self, proxy, vhost, queue, arguments):
        super().__init__(proxy, vhost)
        self.queue, self.arguments = queue, arguments

    def work(self, connection):
        channel = connection.channel()
        channel.queue_declare(self.queue, durable=True, arguments=self.arguments)
        channel.basic_qos(prefetch_count=50)
        channel.basic_consume(self.queue, lambda channel, method, *_: channel.basic_reject(method.delivery_tag, requeue=False))
        while not self.over.is_set():
            connection.process_data_events(0.2)


def sources(prefix="", kind="quorum"):
    """What is rejected, what expires, and what expires where the broker moves it at least once; each with a target of its own."""
    to = lambda source: {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"dead.{prefix}{source}"}
    return {
        f"{prefix}rejected": to("rejected"),
        f"{prefix}expired": to("expired") | {"x-message-ttl": 50},
        f"{prefix}expired-at-least-once": to("expired-at-least-once")
        | {"x-message-ttl": 50, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    }


class Load:
    """A publisher and a consumer of each proxy, all at the same queues. The targets are made on one node, their home. Clients of another kind, past the
    proxies, have queues of their own, with a prefix: the same ones they could not declare."""

    def __init__(self, cluster, vhost, proxies, home=1, prefix=""):
        self.cluster, self.vhost = cluster, vhost
        self.sources = sources(prefix)
        with cluster.connect(home, vhost) as direct:
            for queue in self.sources:
                direct.channel().queue_declare(f"dead.{queue}", durable=True, arguments=QUORUM)
        self.publishers = [Publisher(proxy, vhost, n * 10_000_000, self.sources) for n, proxy in enumerate(proxies)]
        rejected = next(iter(self.sources))
        self.rejecters = [Rejecter(proxy, vhost, rejected, self.sources[rejected]) for proxy in proxies]
        self.clients = [*self.publishers, *self.rejecters]
        self.seen = {queue: Counter() for queue in self.sources}
        self.faults = []

    def __enter__(self):
        # One makes the queues. What another one publishes while 3.10 makes a queue gets no TTL from it, and holds up all that expires behind it for ever
        # (measured without a proxy: three queues of 60 that two clients declared at once).
        first, *others = self.clients
        first.start()
        until(lambda: all(first.confirmed.values()), "the queues are made")
        for client in others:
            client.start()
        self.flows()
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.over.set()

    @contextmanager
    def fault(self):
        """Something is broken, and healed: it is over when publishers get confirms again."""
        began = time.monotonic()
        yield
        self.flows_again()
        self.faults.append((began - MARGIN, time.monotonic() + MARGIN))

    def lasts(self, seconds):
        """The fault goes on for so long; nothing is expected meanwhile."""
        self.publishers[0].over.wait(seconds)

    def in_faults(self, queue):
        """What was confirmed while something was broken."""
        every = (item for publisher in self.publishers for item in publisher.confirmed[queue].items())
        return {number for number, at in every if any(began <= at <= ended for began, ended in self.faults)}

    def leave(self, old, new):
        """The clients of one proxy go to another from their next connection on."""
        for client in self.clients:
            if client.proxy is old:
                client.proxy = new

    def confirmed(self, queue):
        return set().union(*(publisher.confirmed[queue] for publisher in self.publishers))

    def is_answered(self):
        """Each publisher goes on, if only because the broker nacks what it publishes: so 3.10 does, on a new channel, while the node is away on which
        the queue was made (`rabbit_fifo_client:enqueue`, measured without a proxy)."""
        for publisher in self.publishers:
            self._goes_on(publisher, lambda: publisher.number)

    def flows(self):
        """What each publisher publishes is confirmed."""
        for publisher in self.publishers:
            self._goes_on(publisher, publisher.confirms)

    def flows_again(self):
        """After a fault it is, too. But a quorum queue whose leader stood still now and then leaves one publish unanswered until the same channel publishes
        to it again (S8.8), and these publishers wait for each answer. As an application does, such a publisher gives up, once, and connects anew."""
        for publisher in self.publishers:
            try:
                self._goes_on(publisher, publisher.confirms, deadline=SILENCE)
            except AssertionError:
                publisher.give_up()
                self._goes_on(publisher, publisher.confirms)

    def _goes_on(self, publisher, done, more=60, deadline=DEADLINE):
        enough = done() + more
        until(lambda: done() > enough, lambda: f"a publisher stands still: {publisher.lost[-3:]} {publisher.refused[-3:]}", deadline)

    def look(self, queue):
        """Takes what is in the target of a queue, past the proxies; while more comes, for two seconds."""
        end = time.monotonic() + 2
        try:
            with self.cluster.connect(self.cluster.some(), self.vhost) as direct:
                channel = direct.channel()
                channel.basic_qos(prefetch_count=500)
                for method, _, body in channel.consume(f"dead.{queue}", inactivity_timeout=0.5):
                    if method is None:
                        break
                    self.seen[queue][int(body)] += 1
                    channel.basic_ack(method.delivery_tag)
                    if time.monotonic() > end:
                        break
        except CUT:
            pass

    def arrives(self, queue, deadline=60, but=frozenset()):
        """Waits until all that was confirmed is dead, but for these; what never comes is returned."""

        def missing():
            self.look(queue)
            return self.confirmed(queue) - self.seen[queue].keys() - but

        try:
            until(lambda: not missing(), "it is all there", deadline=deadline, progress=lambda: len(self.seen[queue]))
        except AssertionError:
            pass
        return self.confirmed(queue) - self.seen[queue].keys()

    def end(self):
        """Publishers first: a rejecter that ends with them leaves the last messages in their queue."""
        for publisher in self.publishers:
            publisher.end()
        self.arrives(next(iter(self.sources)))
        for rejecter in self.rejecters:
            rejecter.end()

    def queues(self, *columns):
        """What the broker says of them, a line each."""
        return self.cluster.ctl(self.cluster.some(), "-q", "list_queues", "-p", self.vhost, "name", *columns)

    def waiting(self, queue):
        """How many messages are in it, with those that have expired and are not yet moved."""
        counts = dict(line.split("\t") for line in self.queues("messages").splitlines()[1:])
        return int(counts[queue])

    def times(self, queue, numbers):
        """When each of these was confirmed, by the clock of `faults`."""
        return {n: round(publisher.confirmed[queue][n], 1) for publisher in self.publishers for n in sorted(numbers & publisher.confirmed[queue].keys())}

    def summary(self, lost):
        parts = []
        for queue in self.sources:
            twice = sum(self.seen[queue].values()) - len(self.seen[queue])
            parts.append(f"{queue}: {len(self.confirmed(queue))} lost={len(lost[queue])} twice={twice}")
        cut = Counter(words.split("(")[0] for client in self.clients for words in client.lost)
        refused = Counter(words.split("(")[0] for client in self.clients for words in client.refused)
        unanswered = [publisher.unanswered for publisher in self.publishers]
        return f"{'; '.join(parts)}; cut {dict(cut)} refused {dict(refused)} unanswered {unanswered}"
