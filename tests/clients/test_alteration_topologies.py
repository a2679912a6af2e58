"""Queues as frameworks declare them are made anew under their workers, who declare all of it again afterwards."""

import pika
import pytest

from lab import until
from test_alteration import altered, altering, queue_of  # noqa: F401 - a fixture

QUORUM = {"x-queue-type": "quorum"}
AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


class Topology:
    """Exchanges (name: type), queues (name: arguments) and bindings (source, destination, key); a destination that is an exchange begins with `@`."""

    def __init__(self, exchanges, queues, bindings, entry, queue, words, waits=None):
        self.exchanges, self.queues, self.bindings = exchanges, queues, bindings
        self.entry, self.queue, self.words = entry, queue, words
        self.waits = waits
        """Where a message is published that comes to the queue by its time to live."""

    def changed(self):
        """The arguments that `words` set and unset."""
        return {word.split("=")[0] for word in " ".join(self.words).replace("--type ", "x-queue-type=").split() if not word.startswith("--")}

    def declare(self, channel):
        for name, kind in self.exchanges.items():
            channel.exchange_declare(name, kind, durable=True)
        for name, arguments in self.queues.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
        for source, destination, key in self.bindings:
            if destination.startswith("@"):
                channel.exchange_bind(destination[1:], source, key)
            else:
                channel.queue_bind(destination, source, key)


def nservicebus(levels=3):
    """The delay infrastructure has 28 levels there. The broker itself moves on what waits in it, at least once."""
    level = "nsb.v2.delay-level-%02d".__mod__
    exchanges = {"Sales": "fanout", "nsb.v2.delay-delivery": "topic"} | {level(n): "topic" for n in range(levels)}
    queues = {"Sales": QUORUM}
    bindings = [("Sales", "Sales", ""), ("nsb.v2.delay-delivery", "@Sales", "#.Sales")]
    for n in range(levels):
        behind = level(n - 1) if n else "nsb.v2.delay-delivery"
        queues[level(n)] = QUORUM | AT_LEAST_ONCE | {"x-message-ttl": 100 * 2**n, "x-dead-letter-exchange": behind}
        bindings += [(level(n), level(n), f"1.{'*.' * n}#"), (level(n), f"@{behind}", f"0.{'*.' * n}#")]
    return Topology(exchanges, queues, bindings, ("Sales", ""), "Sales", ["--set", "x-delivery-limit=7", "--allow-direct"], waits=(level(levels - 1), "1.0.1.Sales"))


TOPOLOGIES = {
    "celery": Topology(
        {"celery": "direct"}, {"celery": {"x-max-priority": 10}}, [("celery", "celery", "celery")],
        ("celery", "celery"), "celery", ["--type", "quorum", "--unset", "x-max-priority"],
    ),
    "symfony": Topology(
        {"messages": "fanout", "delays": "direct"},
        {"messages": {}, "delay_messages__500_delay": {"x-message-ttl": 500, "x-expires": 60000, "x-dead-letter-exchange": "messages", "x-dead-letter-routing-key": ""}},
        [("messages", "messages", ""), ("delays", "delay_messages__500_delay", "delay_messages__500_delay")],
        ("messages", ""), "messages", ["--set", "x-max-length=100000"], waits=("delays", "delay_messages__500_delay"),
    ),
    "spring-cloud-stream": Topology(
        {"orders": "topic", "DLX": "direct"},
        {"orders.billing": {"x-dead-letter-exchange": "DLX", "x-dead-letter-routing-key": "orders.billing"}, "orders.billing.dlq": {}},
        [("orders", "orders.billing", "#"), ("DLX", "orders.billing.dlq", "orders.billing")],
        ("orders", "orders"), "orders.billing", ["--type", "quorum", "--set", "x-message-ttl=600000"],
    ),
    "masstransit": Topology(
        {"Contracts:SubmitOrder": "fanout", "submit-order": "fanout", "submit-order_error": "fanout"},
        {"submit-order": {}, "submit-order_error": {}},
        [("Contracts:SubmitOrder", "@submit-order", ""), ("submit-order", "submit-order", ""), ("submit-order_error", "submit-order_error", "")],
        ("Contracts:SubmitOrder", ""), "submit-order", ["--type", "quorum"],
    ),
    "nservicebus": nservicebus(),
}


@pytest.mark.parametrize("framework", TOPOLOGIES)
def test_a_worker_goes_on(altering, framework):  # noqa: F811
    own, topology = altering, TOPOLOGIES[framework]
    got = []
    with own.via.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        topology.declare(channel)
        channel.basic_qos(prefetch_count=10)

        def take(channel, method, _, body):
            got.append(body)
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(topology.queue, take)

        def passes(body, place=topology.entry):
            channel.basic_publish(*place, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
            until(lambda: connection.process_data_events(time_limit=0.05) or body in got, lambda: got)

        passes(b"before")
        said = altered(own, topology.queue, *topology.words)
        assert "Clients waited for" in said, said
        passes(b"behind")
        with own.via.connect() as again:
            topology.declare(again.channel())
        if topology.waits:
            passes(b"late", topology.waits)
        assert sorted(got) == sorted({b"before", b"behind", b"late"} if topology.waits else {b"before", b"behind"})
        told = queue_of(own, topology.queue)["arguments"]["x-dlx-proxy-altered"]
        assert set(told.split(",")) == topology.changed()
