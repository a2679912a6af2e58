"""Retries: what a client returns comes back later, as it was, so many times; then it dies."""

import re
import time

import pytest

from lab import until
from own import own  # noqa: F401, a fixture
from retrying import counted, counts, looks

pytestmark = pytest.mark.proxied

POLICY = """
[[policy]]
name = "orders"
vhost = "%s"
pattern = "^own-orders"
[policy.definition]
dead-letter-exchange = ""
dead-letter-routing-key = "own-dead"
delayed-retry-min = 100
delivery-limit = 2
on-crash = "%s"
"""


@pytest.fixture(params=["classic", "quorum"])
def kind(request):
    return request.param


@pytest.mark.parametrize("verb", ["nack", "reject"])
def test_comes_back_as_it_was_and_dies_in_the_end(scene, kind, verb):
    dlx, sink = scene.target()
    queue = scene.queue("work", kind=kind, dlx=dlx, retry_min=100, multiplier=2, limit=3)
    exchange = scene.exchange("in", "topic")
    scene.bind(queue, exchange, "a.#")
    sent = scene.publish(exchange, "a.key", b"again", expiration="600000", headers={"CC": ["a.copy"], "n": 1})
    first, returned = None, None
    for attempt in range(4):
        method, properties, body = scene.get(queue)
        if returned is not None:
            assert time.monotonic() - returned >= 0.1 * 2 ** (attempt - 1), "never early"
        first = first or looks(method, properties)
        assert looks(method, properties) == first and body == sent.body
        assert first[:2] == (exchange, "a.key")
        assert method.redelivered or attempt == 0
        if kind == "classic":
            assert counted(properties) == counts(scene.via, attempt, attempt if verb == "reject" else 0)
        returned = time.monotonic()
        if verb == "nack":
            scene.channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            scene.channel.basic_reject(method.delivery_tag, requeue=True)
    method, properties, body = sink.one()
    assert (method.exchange, method.routing_key, body) == (dlx, "a.key", sent.body)
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["count"], death["queue"], death["exchange"]) == ("delivery_limit", 1, queue, exchange)
    assert death["routing-keys"] == ["a.key", "a.copy"]
    assert death["original-expiration"] == "600000"


def test_a_limit_without_a_delay(scene):
    dlx, sink = scene.target()
    queue = scene.queue("work", kind="classic", dlx=dlx, limit=2)
    assert scene.queue("work", kind="classic", dlx=dlx, limit=2) == queue, "a redeclare stays equal"
    scene.publish("", queue)
    for _ in range(3):
        method, _, _ = scene.get(queue)
        scene.channel.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = sink.one()
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"
    assert scene.depth(queue) == 0


def test_without_a_target_it_is_parked(scene):
    queue = scene.queue("work", kind="classic", limit=0)
    sent = scene.publish("", queue)
    method, _, _ = scene.get(queue)
    scene.channel.basic_nack(method.delivery_tag, requeue=True)
    ((_, properties, _),) = scene.parked(sent)
    assert properties.headers["x-parked-cause"] == "target_unknown"


def test_a_ttl_does_not_begin_anew(scene):
    dlx, sink = scene.target()
    # It is got for the second time after one second, and has to be before its six have passed; after those it is away.
    queue = scene.queue("work", kind="classic", dlx=dlx, ttl=6000, retry_min=1000, retry_max=6000, multiplier=6, limit=-1)
    scene.publish("", queue)
    started = time.monotonic()
    for _ in range(2):
        method, _, _ = scene.get(queue)
        scene.channel.basic_nack(method.delivery_tag, requeue=True)
    method, properties, _ = sink.one()
    assert time.monotonic() - started > 5.9
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["exchange"], death["routing-keys"]) == ("expired", "", [queue])
    assert "original-expiration" not in death


def test_what_comes_round_as_a_dead_letter_begins_anew(scene, kind):
    """It had come back; then the broker killed it, as a client rejected it that does not come through the proxy, and its target sent it to the same
    queue again. In the mode `rejects-only` the proxy has seen nothing of that."""
    queue, rest = scene.name("work"), scene.name("rest")
    scene.queue("rest", ttl=1, dlx="", dlk=queue)
    scene.queue("work", kind=kind, dlx="", dlk=rest, retry_min=100, multiplier=1)
    exchange = scene.exchange("in")
    scene.bind(queue, exchange)
    scene.publish(exchange, "its key")

    def give_back():
        method, properties, _ = scene.get(queue)
        scene.channel.basic_nack(method.delivery_tag, requeue=True)
        until(lambda: scene.depth(queue) == 1, "it is back")
        return method, properties

    method, properties = give_back()
    assert (method.exchange, method.routing_key, counted(properties)) == (exchange, "its key", {})
    with scene.via.direct.channel() as direct:
        direct.basic_reject(direct.basic_get(queue)[0].delivery_tag, requeue=False)
    method, properties = give_back()
    assert (method.exchange, method.routing_key) == ("", queue)
    deaths = properties.headers["x-death"]
    assert [(death["reason"], death["queue"], death["count"]) for death in deaths] == [("expired", rest, 1), ("rejected", queue, 1)]
    again, _, _ = scene.get(queue)
    assert (again.exchange, again.routing_key) == ("", queue)
    # A quorum queue counts for itself, too.
    if kind == "classic":
        assert counted(properties) == {}


def test_what_came_back_dies_as_it_would_have(scene, kind):
    """By the broker, of its TTL, behind a retry: with its own exchange and keys."""
    dlx, sink = scene.target()
    queue = scene.queue("work", kind=kind, dlx=dlx, ttl=5000, retry_min=100, multiplier=1)  # long enough to get it before
    exchange = scene.exchange("in")
    scene.bind(queue, exchange)
    scene.publish(exchange, "its key")
    method, _, _ = scene.get(queue)
    scene.channel.basic_nack(method.delivery_tag, requeue=True)
    method, properties, _ = sink.one()
    assert method.routing_key == "its key"
    death = properties.headers["x-death"][0]
    assert (death["reason"], death["routing-keys"]) == ("expired", ["its key"])


def test_a_queue_that_is_gone_disturbs_nobody(scene):
    gone = scene.queue("gone", kind="classic", retry_min=5000)  # long enough to delete it meanwhile
    stays = scene.queue("stays", kind="classic", retry_min=300)
    lost = scene.publish("", gone)
    scene.publish("", stays, b"other")
    for queue in (gone, stays):
        method, _, _ = scene.get(queue)
        scene.channel.basic_nack(method.delivery_tag, requeue=True)
    away = re.compile(rf'dlx_proxy_retries_total{{.*queue="{re.escape(gone)}",outcome="confirmed"}} 1')
    until(lambda: away.search(scene.via.proxy.get("/metrics")[1]), "the message is away")
    scene.channel.queue_delete(gone)
    ((_, properties, _),) = scene.parked(lost)
    assert properties.headers["x-parked-cause"] in ("unroutable", "no_exchange")
    assert scene.get(stays)[2] == b"other"


def with_policy(own, folder, kind, on_crash="requeue"):
    """The policy, and its queues, which no client of the proxy declares."""
    file = folder / "dlx-proxy.toml"
    file.write_text(POLICY % (own.via.vhost, on_crash))
    own.restart(config=file)
    with own.via.direct.channel() as channel:
        for queue in ("own-orders", "own-dead"):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
            own.queues.append(queue)


@pytest.mark.once
@pytest.mark.parametrize("on_crash, counted_once", [("requeue", []), ("count-oldest", [b"0"]), ("count-all", [b"0", b"1", b"2"])])
def test_a_client_that_is_lost(own, tmp_path, on_crash, counted_once):
    """What it had not settled comes back to its queue; what counts, later."""
    with_policy(own, tmp_path, "classic", on_crash)
    for number in range(3):
        own.publish("own-orders", b"%d" % number)
    for _ in range(3):
        own.get("own-orders")
    sock = own.connection._impl._transport._sock  # pika would say goodbye
    sock.shutdown(2)
    sock.close()
    own.connection = own.connect()
    own.channel = own.connection.channel()
    came = {body: properties for _, properties, body in (own.get("own-orders") for _ in range(3))}
    assert sorted(came) == [b"0", b"1", b"2"]
    assert [body for body in sorted(came) if counted(came[body])] == counted_once


@pytest.mark.once
def test_a_policy_acts_where_nobody_declared_the_queue(own, tmp_path):
    """Its arguments are nobody's business, and a quorum queue of 4.3 is not left to the broker, which knows no such policy."""
    file = tmp_path / "dlx-proxy.toml"
    with_policy(own, tmp_path, "quorum")
    own.publish("own-orders", b"again")
    arrived = []
    own.channel.basic_consume("own-orders", lambda *delivery: arrived.append(delivery))
    for attempt in range(3):
        until(lambda: arrived, "a delivery", pause=lambda: own.connection.process_data_events(0.05))
        _, method, properties, body = arrived.pop()
        assert body == b"again" and method.redelivered == (attempt > 0)
        assert counted(properties) == counts(own.via, attempt, 0)
        assert (method.exchange, method.routing_key) == ("", "own-orders")
        own.channel.basic_nack(method.delivery_tag, requeue=True)
    method, properties, _ = own.get("own-dead")
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"
    assert properties.headers["x-death"][0]["routing-keys"] == ["own-orders"]


def test_a_queue_that_was_made_anew(scene):
    """The exchange that led to the one before is gone."""
    for _ in range(2):
        queue = scene.queue("work", kind="classic", retry_min=100, limit=1)
        scene.publish("", queue)
        for redelivered in (False, True):
            method, _, _ = scene.get(queue)
            assert method.redelivered == redelivered
            if not redelivered:
                scene.channel.basic_nack(method.delivery_tag, requeue=True)
        scene.channel.basic_ack(method.delivery_tag)
        scene.channel.queue_delete(queue)


@pytest.mark.once
def test_a_delay_queue_that_was_made_on_3_x(own):
    """Its arguments say nothing of a delivery limit; on 4.x the declare of today is refused."""
    arguments = {
        "x-queue-type": "quorum", "x-message-ttl": 100, "x-dead-letter-exchange": "own.due",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    }
    own.queues.append("own.delay.100")
    with own.via.direct.channel() as channel:
        channel.queue_declare("own.delay.100", durable=True, arguments=arguments)
    queue = own.queue("work", x_delayed_retry_min=100)
    own.publish(queue)
    for attempt in range(3):
        method, properties, _ = own.get(queue)
        assert counted(properties) == counts(own.via, attempt, 0)
        own.channel.basic_nack(method.delivery_tag, requeue=True)
