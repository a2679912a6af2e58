"""Messages that are away for a retry, or to be sent away, while something goes wrong: none is lost, none comes early, and others do not notice."""

import time

import pytest

from lab import until
from own import PREFIX, own  # noqa: F401, a fixture
from retrying import Consumer, counted, counts, retries

pytestmark = [pytest.mark.proxied, pytest.mark.once]

NO_DELAYS = rf"^(?!{PREFIX}\.delay)"


@pytest.fixture(scope="module")
def no_delays(via):
    """A user for the proxy that may not make or use what leads messages away."""
    via.broker.make([], [("no-delays", "secret")], [("no-delays", via.vhost, NO_DELAYS, NO_DELAYS, ".*")])
    yield "no-delays"
    via.broker.unmake([], ["no-delays"])


def comes_back(scene, queue, count):
    """A neighbour's message goes away and comes back."""
    sent = scene.publish("", queue, b"a neighbour")
    method, _, _ = scene.get(queue)
    scene.channel.basic_nack(method.delivery_tag, requeue=True)
    method, properties, body = scene.get(queue)
    assert body == sent.body and counted(properties) == counts(scene.via, 1, 0)
    scene.channel.basic_ack(method.delivery_tag)
    until(lambda: retries(scene.via.proxy, queue, "returned") == count, "it is counted")


def test_an_alarm(scene):
    """What is away stays there; what is to go stays unsettled, and goes when the alarm is over."""
    via = scene.via
    client = via.connect()  # It publishes nothing: the broker would not read it.
    delay = 3  # seconds: it is due under the alarm, not before
    queue = scene.queue("work", channel=client.channel(), kind="classic", retry_min=delay * 1000, limit=5)
    short = scene.queue("short", kind="classic", retry_min=100)
    for body in (b"away", b"goes"):
        scene.publish("", queue, body)
    consumer = Consumer(client, queue)
    away, goes = consumer.take(2)
    since = time.monotonic()
    consumer.nack(away)
    consumer.until(lambda: retries(via.proxy, queue, "confirmed") == 1, "a message is away")
    with via.broker.under_memory_alarm():
        # The first publish of an alarm is in doubt for longer than those behind it: that of the message that is due, if there is time.
        blocked = lambda: f'dlx_proxy_publisher_blocked{{vhost="{via.vhost}"}} 1' in via.proxy.get("/metrics")[1]
        consumer.until(lambda: blocked() or consumer.arrived, "the alarm is felt")
        consumer.nack(goes)
        consumer.until(lambda: "a reject or a return is kept" in via.proxy.text(), "what cannot be sent away is kept")
        assert not consumer.arrived, "it does not come back at once"
    back = {delivery.body: delivery for delivery in consumer.take(2)}
    assert back[b"away"].came - since >= delay, "never early"
    assert all(counted(delivery.properties) == counts(via, 1, 0) for delivery in back.values())
    comes_back(scene, short, 1)
    for delivery in back.values():
        consumer.ack(delivery)
    client.close()
    until(lambda: via.broker.messages(via.vhost, queue) == 0, "nothing is there twice")


@pytest.mark.parametrize("made", [True, False], ids=["there", "missing"])
def test_a_user_that_may_not_send_away(no_delays, own, made):
    """Returns stay unsettled, uncounted, and a line says why. Limits and dead letters go on."""
    own.stop()
    if not made:
        with own.via.direct.channel() as channel:
            for exchange in ("delay", "due"):
                channel.exchange_delete(f"{PREFIX}.{exchange}")
    own.restart(user=no_delays)
    dead = own.queue("dead")
    target = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    work = own.queue("work", x_delayed_retry_min=100, x_delivery_limit=3, **target)
    limited = own.queue("limited", x_delivery_limit=1, **target)
    brief = own.queue("brief", x_message_ttl=1, **target)
    own.publish(work, b"rejected")
    for lap in range(2):
        method, properties, _ = own.get(work)
        assert method.redelivered == (lap > 0) and not counted(properties)
        own.channel.basic_nack(method.delivery_tag, requeue=True)
        refused = retries(own.proxy, work, "refused")
        until(lambda: retries(own.proxy, work, "refused") >= refused + 2, "it is tried again")
        assert own.depth(work) == 0
        # With its channel it goes back.
        own.channel.close()
        own.channel = own.connection.channel()
    own.channel.basic_reject(own.get(work)[0].delivery_tag, requeue=False)
    own.publish(limited, b"limit")
    for returned in range(2):
        method, properties, _ = own.get(limited)
        assert counted(properties) == counts(own.via, returned, 0)
        own.channel.basic_nack(method.delivery_tag, requeue=True)
    own.publish(brief, b"expired")
    died = {body: properties.headers["x-death"][0]["reason"] for _, properties, body in (own.get(dead) for _ in range(3))}
    assert died == {b"rejected": "rejected", b"limit": "delivery_limit", b"expired": "expired"}
    said = [line for line in own.proxy.text().splitlines() if "could not be published to its delay queue" in line]
    assert said and f"queue={work}" in said[0] and "forbidden" in said[0], said
    assert own.losses() == 0, "a refusal costs no link"


def test_delays_are_rounded_up_to_a_grid(own):
    away = []
    for millis in (100, 110, 300, 310, 1000):
        queue = own.queue(f"after-{millis}", x_delayed_retry_min=millis, x_delivery_limit=5)
        own.publish(queue)
        consumer = Consumer(own.connection, queue)
        delivery = consumer.one()
        away.append((consumer, millis / 1000, time.monotonic()))
        consumer.nack(delivery)
    for consumer, delay, since in away:
        delivery = consumer.one()
        assert delivery.came - since >= delay, f"{consumer.queue} is early"
        assert counted(delivery.properties) == counts(own.via, 1, 0)
    assert delay_queues(own) == sorted(f"{PREFIX}.delay.{millis}" for millis in (100, 125, 300, 350, 1000))


def delay_queues(own):
    return sorted(queue for queue in own.via.broker.queues(own.via.vhost) if queue.startswith(f"{PREFIX}.delay."))


def test_a_consumer_that_does_not_read(scene):
    """Hundreds of messages that are due wait for it alone."""
    count, client = 300, scene.via.connect()
    queue = scene.queue("flooded", channel=client.channel(), kind="classic", retry_min=100, limit=1)
    other = scene.queue("other", kind="classic", retry_min=100)
    bodies = [b"%d" % number + bytes(60_000) for number in range(count)]  # more than the sockets take
    for body in bodies:
        scene.channel.basic_publish("", queue, body)
    consumer = Consumer(client, queue)
    consumer.nack(consumer.take(count)[-1], multiple=True)
    until(lambda: retries(scene.via.proxy, queue, "returned") == count, "all are back, and nobody reads them")
    for lap in range(3):
        comes_back(scene, other, lap + 1)
    back = consumer.take(count)
    assert [delivery.body for delivery in back] == bodies
    assert all(counted(delivery.properties) == counts(scene.via, 1, 0) for delivery in back)
    client.close()


def test_a_queue_that_is_full(scene):
    """What its queue refuses waits for room, and comes back in order."""
    count = 20
    queue = scene.queue("full", kind="classic", retry_min=100, max_length=count, overflow="reject-publish")
    other = scene.queue("other", kind="classic", retry_min=100)
    sent = [scene.publish("", queue, b"%d" % number).body for number in range(count)]
    taken = [scene.get(queue)[0].delivery_tag for _ in sent]
    for _ in range(count):  # What is unsettled takes no room.
        scene.publish("", queue, b"later")
    until(lambda: scene.depth(queue) == count, "the queue is full")
    scene.channel.basic_nack(taken[-1], multiple=True, requeue=True)
    until(lambda: retries(scene.via.proxy, queue, "refused") >= count, "all have been refused")
    comes_back(scene, other, 1)
    back = []
    for _ in range(2 * count):
        method, properties, body = scene.get(queue)
        scene.channel.basic_ack(method.delivery_tag)
        if body != b"later":
            assert counted(properties) == counts(scene.via, 1, 0)
            back.append(body)
    assert back == sent
    assert scene.depth(queue) == 0


def test_a_proxy_that_is_killed(own):
    """By kill -9, while 500 are away: the next one brings each of them back, not early, and knows how often it has been away."""
    count, delay, via = 500, 2, own.via
    dead = own.queue("dead")
    words = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead, "x_delayed_retry_min": delay * 1000, "x_delivery_limit": 1}
    work = own.queue("work", **words)
    bodies = {b"%d" % number for number in range(count)}
    for body in bodies:
        own.publish(work, body)
    consumer = Consumer(own.connection, work)
    last = consumer.take(count)[-1]
    since = time.monotonic()
    consumer.nack(last, multiple=True)
    until(lambda: via.broker.messages(via.vhost, work) == 0, "all are away")
    own.proxy.process.kill()
    own.proxy.process.wait()
    exactly = time.monotonic() - since < delay  # Else some may have been on their way back, which makes duplicates.
    own.start()
    own.queue("work", **words)
    consumer = Consumer(own.connection, work)
    back = consumer.take(count)
    consumer.until(lambda: {delivery.body for delivery in back + consumer.arrived} == bodies, "each is back")
    back += consumer.arrived
    assert min(delivery.came for delivery in back) - since >= delay, "never early"
    assert all(counted(delivery.properties) == counts(via, 1, 0) for delivery in back)
    consumer.nack(back[-1], multiple=True)
    deaths = Consumer(own.connection, dead)
    died = deaths.take(len(back))
    assert {delivery.body for delivery in died} == bodies
    assert {delivery.properties.headers["x-death"][0]["reason"] for delivery in died} == {"delivery_limit"}
    assert len(died) == count or not exactly, f"{len(died) - count} duplicates"
    until(lambda: via.broker.messages(via.vhost, work) == 0, "none is delivered more often than the limit says")
