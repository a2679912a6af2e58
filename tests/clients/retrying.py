"""What tests of retries share: a consumer that settles nothing by itself, and what it sees of how often a message has come back."""

import re
import time
from dataclasses import dataclass

from lab import until


def counts(via, returns, failed):
    """The headers that say how often a message has come back."""
    if via.broker.is_from(4, 3):
        said = {"x-acquired-count": returns, "x-delivery-count": failed}
    else:
        said = {"x-delivery-count": returns}
    return {name: count for name, count in said.items() if count}


def looks(method, properties):
    """All that a consumer sees, but for how often it has come back."""
    headers = {name: value for name, value in (properties.headers or {}).items() if name not in ("x-delivery-count", "x-acquired-count")}
    said = {name: value for name, value in vars(properties).items() if name != "headers"}
    return method.exchange, method.routing_key, headers, said


def counted(properties):
    said = (properties.headers or {}).items()
    return {name: value for name, value in said if name in ("x-delivery-count", "x-acquired-count") and value}


def retries(proxy, queue, outcome):
    """How many returned messages of the queue were sent away ("confirmed"), could not be ("refused"), or are back in it ("returned")."""
    labels = rf'queue="{re.escape(queue)}",outcome="{outcome}"'
    found = re.search(rf"^dlx_proxy_retries_total{{.*{labels}}} (\d+)", proxy.get("/metrics")[1], re.MULTILINE)
    return int(found[1]) if found else 0


@dataclass
class Delivery:
    method: object
    properties: object
    body: bytes
    came: float

    @property
    def tag(self):
        return self.method.delivery_tag


class Consumer:
    """A consumer on a connection of its own, or one that is given; what it has is in `arrived` until a test takes it."""

    def __init__(self, connection, queue, prefetch=0):
        self.connection, self.queue, self.arrived = connection, queue, []
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.tag = self.channel.basic_consume(queue, self._arrive)

    def _arrive(self, _channel, method, properties, body):
        self.arrived.append(Delivery(method, properties, body, time.monotonic()))

    def work(self):
        self.connection.process_data_events(0.02)

    def take(self, count=1):
        """The next `count` deliveries."""
        here = lambda: len(self.arrived)
        until(lambda: here() >= count, lambda: f"{here()} of {count} from {self.queue}", pause=self.work, progress=here)
        taken, self.arrived[:] = self.arrived[:count], self.arrived[count:]
        return taken

    def one(self):
        (delivery,) = self.take()
        return delivery

    def until(self, condition, what):
        """Reads on until it is so."""
        return until(condition, what, pause=self.work)

    def nack(self, delivery, multiple=False):
        self.channel.basic_nack(delivery.tag, multiple=multiple, requeue=True)

    def ack(self, delivery):
        self.channel.basic_ack(delivery.tag)
