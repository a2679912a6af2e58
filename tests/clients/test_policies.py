"""The proxy's own policies: the same as if the broker had them, judged by a broker that has them."""

import json

import pika
import pytest

from lab import PATIENT, Proxy, until
from scene import Sink, arguments

pytestmark = [pytest.mark.once, pytest.mark.proxied]

OURS, JUDGE = "clients-policies", "clients-policies-judge"


def policy(name, pattern, priority=0, apply_to="queues", vhost=OURS, mode=None, **definition):
    definition = {"dead-letter-exchange" if key == "dlx" else "dead-letter-routing-key": value for key, value in definition.items()}
    return {"name": name, "pattern": pattern, "priority": priority, "apply-to": apply_to, "vhost": vhost, "mode": mode, "definition": definition}


def as_toml(policies):
    lines = []
    for each in policies:
        lines += ["[[policy]]", *(f"{key} = {json.dumps(value)}" for key, value in each.items() if key != "definition" and value is not None)]
        lines += ["[policy.definition]", *(f"{key} = {json.dumps(value)}" for key, value in each["definition"].items())]
    return "\n".join(lines)


class World:
    """A proxy with these policies in a vhost, and another vhost in which the broker has them."""

    def __init__(self, via, folder, policies, mode, judged):
        self.broker, self.sinks = via.broker, {}
        self.broker.make([OURS, JUDGE], [], [(self.broker.user, vhost, ".*", ".*", ".*") for vhost in (OURS, JUDGE)])
        file = folder / "dlx-proxy.toml"
        file.write_text(as_toml(policies))
        self.proxy = Proxy(self.broker.url, mode, folder / "log", DLX_PROXY_CONFIG=str(file), DLX_PROXY_VHOSTS=OURS, DLX_PROXY_LOG_LEVEL="debug")
        try:
            self.proxy.wait_ready()
            self.connections = {OURS: self.connect(self.proxy.address, OURS), JUDGE: self.connect(self.broker.address, JUDGE)}
        except BaseException:
            self.proxy.stop()
            raise
        for each in policies:
            if judged and each["definition"] and each["vhost"] == OURS:
                self.broker.set_policy(JUDGE, each["name"], each["pattern"], each["definition"], each["priority"], each["apply-to"])

    def connect(self, address, vhost):
        return pika.BlockingConnection(pika.ConnectionParameters(*address, vhost, self.broker.parameters.credentials, **PATIENT))

    def death(self, vhost, queue, reason, exchanges=("a", "b", "c"), **short):
        """Exchange and key of a message that dies in this queue, which is declared with these arguments."""
        connection = self.connections[vhost]
        channel = connection.channel()
        if vhost not in self.sinks:
            channel.queue_declare("sink", durable=True)
            for exchange in exchanges:
                channel.exchange_declare(exchange, "fanout", durable=True)
                channel.queue_bind("sink", exchange)
            self.sinks[vhost] = Sink(connection, "sink")
        channel.queue_declare(queue, durable=True, arguments=arguments(**short))
        properties = pika.BasicProperties(expiration="1" if reason == "expired" else None, headers={"CC": [f"{queue}-cc"]})
        channel.basic_publish("", queue, b"a body", properties)
        if reason == "rejected":
            got = until(lambda: next((got for got in [channel.basic_get(queue)] if got[0]), None), f"a message in {queue}")
            channel.basic_reject(got[0].delivery_tag, requeue=False)
        method, properties, _ = self.sinks[vhost].one()
        channel.queue_delete(queue)
        channel.close()
        entries = [{key: value for key, value in entry.items() if key != "time"} for entry in properties.headers["x-death"]]
        return method.exchange, method.routing_key, entries

    def close(self):
        try:
            for connection in self.connections.values():
                connection.close()
            self.proxy.stop()
        finally:
            self.broker.unmake([OURS, JUDGE], [])


@pytest.fixture
def world(via, tmp_path):
    made = []

    def make(*policies, mode="full", judged=True):
        made.append(World(via, tmp_path, policies, mode, judged))
        return made[-1]

    yield make
    for world in made:
        world.close()


KINDS = ("classic", "quorum")
REASONS = ("rejected", "expired")


def test_precedence_is_the_broker_s(world):
    """The highest priority that fits wins alone; arguments overrule it key by key."""
    world = world(
        policy("all", ".*", priority=-5, apply_to="all", dlx="a", key="lowest"),
        policy("low", "^orders", priority=1, dlx="a", key="low"),
        policy("high", "high", priority=2, dlx="b"),
        policy("key", "key$", priority=3, key="k"),
        policy("elsewhere", ".*", priority=99, vhost="clients-nowhere", dlx="c"),
    )
    for kind in KINDS:
        for reason in REASONS:
            for queue, short, exchange, key in [
                ("other", {}, "a", "lowest"),
                ("orders", {}, "a", "low"),
                ("orders.high", {}, "b", None),
                ("orders", {"dlx": "c"}, "c", "low"),
                ("orders", {"dlx": "c", "dlk": "mine"}, "c", "mine"),
                ("orders", {"dlx": "c", "dlk": ""}, "c", ""),
                ("orders.high", {"dlx": "c"}, "c", None),
                ("orders.high.key", {"dlx": "c"}, "c", "k"),
            ]:
                got, judged = (world.death(vhost, queue, reason, kind=kind, **short) for vhost in (OURS, JUDGE))
                assert got == judged, (kind, reason, queue, short)
                assert got[:2] == (exchange, queue if key is None else key)


@pytest.mark.parametrize("reason", REASONS)
def test_apply_to(world, via, reason):
    """3.10 has no policies for one type of queues: there they are the proxy's alone, and nobody judges."""
    policies = [
        policy("classic", "^q", priority=2, apply_to="classic_queues", dlx="a", key="classic"),
        policy("quorum", "^q", priority=1, apply_to="quorum_queues", dlx="b", key="quorum"),
    ]
    world = world(*policies, judged=via.broker.is_4x)
    for kind, exchange in zip(KINDS, "ab"):
        for short in ({}, {"dlx": "c"}):
            got = world.death(OURS, "q", reason, kind=kind, **short)
            assert got[:2] == (short.get("dlx", exchange), kind), short
            if via.broker.is_4x:
                assert got == world.death(JUDGE, "q", reason, kind=kind, **short), (kind, short)


@pytest.mark.parametrize("mode", ["full", "rejects-only"])
def test_the_mode_of_a_policy_overrules_the_global_one(world, mode):
    other = {"full": "rejects-only", "rejects-only": "full"}[mode]
    world = world(policy("other", "^other", mode=other), policy("target", "^target", mode=other, dlx="a"), mode=mode)
    channel = world.connections[OURS].channel()

    for queue, dlx, how in [("plain", "c", mode), ("other", "c", other), ("target.1", None, other), ("target.2", "c", other)]:
        channel.queue_declare(queue, durable=True, arguments=arguments(dlx=dlx))
        until(lambda: f'queue is managed queue={queue} mode="{how}"' in world.proxy.text(), queue)  # a moment after the answer
    for queue, exchange in [("plain", "c"), ("other", "c"), ("target.1", "a"), ("target.2", "c")]:
        channel.queue_delete(queue)
        short = {} if queue == "target.1" else {"dlx": "c"}
        assert world.death(OURS, queue, "rejected", **short)[0] == exchange
        # In mode `rejects-only` the broker does not know a target that only a policy of ours names.
        if queue != "target.1" or other == "full":
            assert world.death(OURS, queue, "expired", **short)[0] == exchange
    channel.close()


def test_a_queue_that_the_broker_names(world):
    world = world(policy("generated", r"^amq\.gen-", dlx="a", key="k"))
    channel = world.connections[OURS].channel()
    channel.queue_declare("sink", durable=True)
    channel.exchange_declare("a", "fanout", durable=True)
    channel.queue_bind("sink", "a")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"", pika.BasicProperties(expiration="1"))
    sink = Sink(world.connections[OURS], "sink")
    method, _, _ = sink.one()
    assert (method.exchange, method.routing_key) == ("a", "k")
    channel.close()
