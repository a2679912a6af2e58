"""What the proxy does not know, or cannot ask, is no "no": what was known of a queue counts on, and nothing is lost meanwhile."""

import pika
import pytest

from lab import PATIENT, until
from test_kept import ALL, KINDS, SMALL, VHOST, World, world  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

USER = "clients-unknown"


def rejects_all(connection, queue="source"):
    """A worker that declares nothing."""
    channel, seen = connection.channel(), []
    channel.basic_qos(prefetch_count=5)

    def reject(channel, method, _properties, body):
        seen.append(body)
        channel.basic_reject(method.delivery_tag, requeue=False)

    channel.basic_consume(queue, reject)
    until(lambda: len(seen) >= SMALL, lambda: f"{len(seen)} of {SMALL} rejected", pause=lambda: connection.process_data_events(0.05))


@KINDS
def test_a_right_that_is_taken_away(world, kind):
    """The user may not declare the queue any more, so the broker cannot be asked for it."""
    world = world(kind)
    world.broker.make([], [(USER, "secret")], [])
    try:
        world.broker.permit(VHOST, USER, ".*", ".*", ".*")
        login = pika.PlainCredentials(USER, "secret")
        client = pika.BlockingConnection(pika.ConnectionParameters(*world.proxy.address, VHOST, login, **PATIENT))
        client.channel().queue_declare("source", durable=True, arguments={"x-queue-type": kind})
        world.broker.permit(VHOST, USER, "^$", ".*", ".*")
        rejects_all(client)
        assert world.bodies() == ALL
        client.close()
    finally:
        world.broker.unmake([], [USER])


@KINDS
def test_a_worker_that_declares_nothing(world, kind):
    """Another connection has declared the queue."""
    world = world(kind)
    worker = world.connect(world.proxy.address)
    rejects_all(worker)
    assert world.bodies() == ALL
    worker.close()


def made_elsewhere(world, kind):
    """A queue with messages that crossed no proxy."""
    arguments = {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 600_000, "x-max-length": 100}
    world.direct.queue_declare("elsewhere", durable=True, arguments=arguments)
    for number in range(SMALL):
        world.publish(b"%d" % number, "elsewhere")


@KINDS
def test_a_queue_that_nobody_declared_here(world, kind):
    """The broker is asked what it is."""
    world = world(kind)
    made_elsewhere(world, kind)
    for worker in (world.connect(world.proxy.address), world.connect(world.proxy.address)):
        rejects_all(worker, "elsewhere")
        assert world.bodies() == ALL
        worker.close()
        made_elsewhere(world, kind)
    assert world.metric("dlx_proxy_messages_dead_lettered_total") == 2 * SMALL
    assert world.metric("dlx_proxy_fallbacks_total") == 0


@KINDS
def test_a_queue_that_nobody_may_ask_about(world, kind):
    """Its rejects are left to the broker, and that is said once."""
    world = world(kind)
    made_elsewhere(world, kind)
    world.broker.make([], [(USER, "secret")], [])
    try:
        world.broker.permit(VHOST, USER, "^$", ".*", ".*")
        login = pika.PlainCredentials(USER, "secret")
        for _ in range(2):
            worker = pika.BlockingConnection(pika.ConnectionParameters(*world.proxy.address, VHOST, login, **PATIENT))
            rejects_all(worker, "elsewhere")
            assert world.bodies() == ALL
            worker.close()
            made_elsewhere(world, kind)
    finally:
        world.broker.unmake([], [USER])
    assert world.metric("dlx_proxy_messages_dead_lettered_total") == 0
    assert world.metric('dlx_proxy_fallbacks_total{request="declare",cause="undeclared"}') == 1
    assert world.proxy.text().count("nobody declared the queue here") == 1


def test_a_consumer_that_was_too_slow(world):
    """The broker cancels it, and the queue stays."""
    world = world("quorum")
    if not world.broker.is_from(4, 3):
        pytest.skip("up to 4.2 its channel is closed")
    cancelled, slow = [], world.client.channel()
    slow.basic_qos(prefetch_count=1)
    slow.add_on_cancel_callback(cancelled.append)
    slow.basic_consume("source", lambda *_: None, arguments={"x-consumer-timeout": 500})
    until(lambda: cancelled, "basic.cancel", pause=lambda: world.client.process_data_events(0.05))
    rejects_all(world.client)
    assert world.bodies() == ALL


def test_a_vhost_whose_queues_are_quorum_queues_by_default(scene):
    """A declare says no type, and a limit that classic queues do not know."""
    broker, vhost = scene.via.broker, "clients-default-type"
    broker.unmake([vhost], [])
    broker.ctl("add_vhost", vhost, "--default-queue-type", "quorum")
    broker.permit(vhost, broker.user, ".*", ".*", ".*")
    parameters = [
        pika.ConnectionParameters(*address, vhost, broker.parameters.credentials, **PATIENT) for address in (broker.address, scene.via.proxy.address)]
    direct, through = map(pika.BlockingConnection, parameters)
    try:
        arguments = {"x-delivery-limit": 5}
        direct.channel().queue_declare("there", durable=True, arguments=arguments)
        through.channel().queue_declare("there", durable=True, arguments=arguments)
        through.channel().queue_declare("made", durable=True, arguments=arguments)
        direct.channel().queue_declare("made", durable=True, arguments=arguments)
        # Nobody's own queue is of that type.
        through.channel().queue_declare("own", durable=True, exclusive=True, arguments=arguments)
    finally:
        direct.close()
        through.close()
        broker.unmake([vhost], [])
