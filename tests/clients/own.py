"""A proxy of a test's own, with names of its own: what is done to its intake is nothing for the neighbours."""

import re
from types import SimpleNamespace

import pika
import pytest

from lab import PATIENT, Proxy, until

PREFIX = "own"
INTAKE, PARKED = f"{PREFIX}.intake", f"{PREFIX}.parked"


class Own:
    """A proxy in front of the broker of this test, its intake queue of the given type, its own user the administrator or another, and
    a connection through it."""

    def __init__(self, via, kind, log, user=None):
        self.via, self.kind, self.log = via, kind, log
        self.queues, self.settings, self.address = [], {}, via.broker.address
        self._upstream(user)
        self.start()

    def _upstream(self, user):
        login = self.via.broker.parameters.credentials
        self.upstream = "amqp://%s:%s@%s:%d" % ((user or login.username, "secret" if user else login.password) + self.address)

    def restart(self, user=None, address=None, **settings):
        """Once more with other settings, another user of its own, or another way to the broker."""
        self.stop()
        self.address = address or self.address
        self._upstream(user)
        self.settings = {f"DLX_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
        self.start()

    def start(self):
        self.proxy = Proxy(self.upstream, "full", self.log, **{"DLX_PROXY_PREFIX": PREFIX, "DLX_PROXY_INTAKE_QUEUE_TYPE": self.kind} | self.settings)
        self.proxy.wait_ready()
        self.connection = self.connect()
        self.channel = self.connection.channel()
        until(self.is_consuming, self.proxy.text)

    def connect(self):
        login = self.via.broker.parameters.credentials
        return pika.BlockingConnection(pika.ConnectionParameters(*self.proxy.address, self.via.vhost, login, **PATIENT))

    def stop(self):
        if self.connection.is_open:
            self.connection.close()
        self.proxy.stop()

    def is_consuming(self):
        return self.metric("dlx_proxy_intake_consuming") == 1

    def queue(self, label, **arguments):
        """A queue declared through the proxy."""
        name = f"{PREFIX}-{label}"
        self.channel.queue_declare(name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
        self.queues.append(name)
        return name

    def publish(self, queue, body=b"m", **properties):
        self.channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, **properties))

    @property
    def way(self):
        """For connections by hand."""
        return SimpleNamespace(broker=self.via.broker, vhost=self.via.vhost, address=self.proxy.address)

    def get(self, queue):
        """The next message of the queue, through the proxy."""
        return until(lambda: next((got for got in [self.channel.basic_get(queue)] if got[0]), None), f"a message in {queue}")

    def depth(self, queue):
        with self.via.direct.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def parked(self, count):
        """So many messages, once they are parked."""
        until(lambda: self.depth(PARKED) >= count, lambda: f"{self.depth(PARKED)} of {count} parked")
        with self.via.direct.channel() as channel:
            return [channel.basic_get(PARKED, auto_ack=True) for _ in range(count)]

    def metric(self, name, proxy=None):
        """The metric of this vhost, summed over its other labels; of this proxy or another one."""
        lines = [line for line in (proxy or self.proxy).get("/metrics")[1].splitlines() if re.match(rf"{name}{{.*vhost=\"{self.via.vhost}\"", line)]
        return sum(int(line.split()[-1]) for line in lines)

    def losses(self):
        """How often its intake link was lost."""
        said = self.proxy.get("/metrics")[1]
        found = re.search(rf'^dlx_proxy_link_failures_total{{vhost="{self.via.vhost}",link="intake"}} (\d+)$', said, re.M)
        return int(found[1]) if found else 0

    def close(self):
        self.stop()
        with self.via.direct.channel() as channel:
            for queue in {*self.queues, *(queue for queue in self.via.broker.queues(self.via.vhost) if queue.startswith(f"{PREFIX}."))}:
                channel.queue_delete(queue)
            for exchange in self.via.broker.exchanges(self.via.vhost):
                if exchange.startswith(PREFIX):
                    channel.exchange_delete(exchange)


@pytest.fixture
def own(via, request, tmp_path):
    own = Own(via, getattr(request, "param", "quorum"), tmp_path / "log")
    yield own
    own.close()
