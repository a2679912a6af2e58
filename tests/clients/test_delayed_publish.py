"""Delayed publishes: `x-delay` on exchanges of the plugin's type, which the broker does not know, and `x-opt-delivery-time` on any."""

import threading
import time

import pika
import pytest

from console import management
from lab import until
from scene import PREFIX, user

HEADERS = "x-delay,x-opt-delivery-time"
CLOSED = pika.exceptions.ChannelClosedByBroker


@pytest.fixture
def delays(own):
    own.restart(delayed_publish=HEADERS)
    yield own


def delayed(own, label="delayed", kind="direct", **more):
    """An exchange, and a queue behind it."""
    exchange = own.exchange(label, "x-delayed-message", arguments={"x-delayed-type": kind} | more)
    queue = own.queue(f"{label}-queue")
    own.bind(queue, exchange, "key")
    return exchange, queue


def arrives(own, queue, since, delay):
    """Not early, and not late."""
    message = own.get(queue)
    waited = time.monotonic() - since
    assert delay <= waited <= delay + max(0.25, delay / 100) + 0.5, f"{waited} for {delay}"
    own.channel.basic_ack(message.method.delivery_tag)
    return message


@pytest.mark.parametrize("delay", [1, 700, "300", 2600])
def test_a_publish_waits_as_long_as_it_says(delays, delay):
    exchange, queue = delayed(delays)
    since = time.monotonic()
    delays.publish(exchange, "key", b"later", headers={"x-delay": delay, "mine": 1}, user_id=delays.via.broker.user, expiration="600000", priority=3)
    message = arrives(delays, queue, since, int(delay) / 1000)
    assert message.properties.headers == {"x-delay": -int(delay), "mine": 1}
    assert (message.method.exchange, message.method.routing_key, message.body) == (exchange, "key", b"later")
    assert (message.properties.expiration, message.properties.priority, message.properties.user_id) == ("600000", 3, delays.via.broker.user)


@pytest.mark.parametrize("delay", [0, -5, 2**32, "soon", True, None])
def test_what_is_no_delay_goes_at_once(delays, delay):
    exchange, queue = delayed(delays)
    delays.publish(exchange, "key", headers={"x-delay": delay})
    assert delays.get(queue).properties.headers == {"x-delay": delay}
    delays.publish(exchange, "key")
    delays.get(queue)


def test_what_waits_less_overtakes(delays):
    exchange, queue = delayed(delays)
    for delay in (900, 100, 500):
        delays.publish(exchange, "key", str(delay).encode(), headers={"x-delay": delay})
    assert [delays.get(queue).body for _ in range(3)] == [b"100", b"500", b"900"]


def test_it_is_routed_as_things_stand_when_it_is_due(delays):
    exchange, queue = delayed(delays, kind="topic")
    other = delays.queue("other")
    delays.publish(exchange, "a.key", headers={"x-delay": 600, "CC": ["b.key"], "BCC": ["c.key"]})
    for key in ("a.*", "c.*"):
        delays.bind(other if key == "c.*" else queue, exchange, key)
    assert delays.get(queue).properties.headers.get("CC") == ["b.key"]
    assert "BCC" not in delays.get(other).properties.headers


def test_what_nothing_routes_is_parked(delays):
    exchange = delays.exchange("nowhere", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    delays.publish(exchange, "key", b"lost", headers={"x-delay": 100})
    (parked,) = delays.parked(1)
    assert (parked.properties.headers["x-parked-exchange"], parked.properties.headers["x-parked-cause"], parked.body) == (exchange, "unroutable", b"lost")


def test_declares_of_the_type(delays):
    exchange, _ = delayed(delays)
    for again in ("fanout", "direct"):
        delays.channel.exchange_declare(exchange, passive=True)
        try:
            delays.channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": again})
        except CLOSED as closed:
            assert closed.reply_code == 406 and again == "fanout"
    for wrong in ({}, {"x-delayed-type": "x-delayed-message"}):
        with pytest.raises(CLOSED, match="406.*'x-delayed-type' must be an existing exchange type"):
            delays.channel.exchange_declare(delays.name("wrong"), "x-delayed-message", arguments=wrong)
    assert exchange in delays.via.broker.exchanges(delays.via.vhost) and delays.name("wrong") not in delays.via.broker.exchanges(delays.via.vhost)


def test_a_delivery_time(delays):
    """On any exchange, also the default one."""
    queue = delays.queue("timed")
    at = int(time.time() * 1000) + 1100
    since = time.monotonic()
    delays.publish("", queue, headers={"x-opt-delivery-time": at})
    message = delays.get(queue)
    assert time.time() * 1000 >= at and time.monotonic() - since < 2
    assert message.properties.headers == {"x-opt-delivery-time": at}
    delays.publish("", queue, headers={"x-opt-delivery-time": at})
    delays.get(queue)
    delays.publish("", queue, headers={"x-opt-delivery-time": at + 101 * 365 * 86_400_000})
    with pytest.raises(CLOSED, match="406.*more than 100 years ahead"):
        delays.channel.queue_declare(queue, passive=True)


def test_in_tx_mode_it_is_refused(delays):
    exchange, queue = delayed(delays)
    delays.channel.tx_select()
    delays.publish(exchange, "key")
    delays.channel.tx_commit()
    delays.publish(exchange, "key", headers={"x-delay": 10})
    with pytest.raises(CLOSED, match="540.*tx mode"):
        delays.channel.tx_commit()
    delays.has(queue, 1)


def test_confirms_have_the_numbers_of_the_client(delays):
    exchange, queue = delayed(delays)
    connection = delays.via.connect()
    channel = connection.channel()
    heard = []
    channel._impl.confirm_delivery(ack_nack_callback=lambda frame: heard.append(frame.method))
    total = 400
    for number in range(1, total + 1):
        late = number % 3 == 0
        headers = {"x-delay": 300 + number % 7} if late else {}
        channel._impl.basic_publish(exchange, "key", str(number).encode(), pika.BasicProperties(headers=headers, delivery_mode=2))

    def tags():
        told = []
        for method in heard:
            if method.multiple:
                told += [n for n in range(1, method.delivery_tag + 1) if n not in told]
            else:
                assert method.delivery_tag not in told, "twice"
                told.append(method.delivery_tag)
        return told

    until(lambda: len(tags()) == total, lambda: f"{len(tags())} confirms", pause=lambda: connection.process_data_events(0.02))
    assert all(isinstance(method, pika.spec.Basic.Ack) for method in heard)
    delays.has(queue, total)
    connection.close()


def test_a_user_that_may_not_write(delays):
    """The broker's own words close the channel, and nothing is published."""
    exchange, queue = delayed(delays)
    topic, topics = delayed(delays, "topic", kind="topic")
    with user(delays.via, "reader", "^$", f"^{topic}$", ".*", topics=(topic, "^key$")) as reader:
        connection = delays.via.connect(user=reader)
        for to, key, words in [(exchange, "key", f"403.*exchange '{exchange}'"), (topic, "other", "403.*topic 'other'")]:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(CLOSED, match=words):
                channel.basic_publish(to, key, b"", pika.BasicProperties(headers={"x-delay": 50}))
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(2):
            channel.basic_publish(topic, "key", b"allowed", pika.BasicProperties(headers={"x-delay": 50}))
        with pytest.raises(CLOSED, match="406.*user_id"):
            channel.basic_publish(topic, "key", b"", pika.BasicProperties(headers={"x-delay": 50}, user_id="guest"))
        connection.close()
    delays.has(topics, 2)
    assert delays.depth(queue) == 0
    delays.channel.confirm_delivery()
    with pytest.raises(CLOSED, match="404.*no exchange"):
        delays.publish(delays.name("none"), "key", headers={"x-opt-delivery-time": int(time.time() * 1000) + 5000})


def test_what_a_client_writes_into_a_delay_queue_proves_nothing(delays):
    """It names an exchange, and is parked."""
    exchange, queue = delayed(delays)
    delays.publish(exchange, "key", headers={"x-delay": 50})
    delays.get(queue)
    with delays.via.direct.channel() as direct:
        table = {"queue": "", "exchange": exchange, "routing-key": "key", "all": 0, "failed": 0, "delay": 10, "due": 10, "deaths": {}}
        direct.basic_publish(f"{PREFIX}.delay", "50", b"forged", pika.BasicProperties(headers={"x-dlx-proxy-retry": table, "x-dlx-proxy-user-id": None}))
    (parked,) = delays.parked(1)
    assert parked.body == b"forged" and delays.depth(queue) == 0


def test_nothing_is_lost_when_the_proxy_is_killed(delays):
    """What was confirmed arrives, early never."""
    exchange, queue = delayed(delays)
    channel, confirmed = delays.channel, {}
    channel.confirm_delivery()
    killed = threading.Timer(1.5, delays.proxy.kill)
    killed.start()
    sent = 0
    try:
        while sent < 100_000:
            sent += 1
            channel.basic_publish(exchange, "key", str(sent).encode(), pika.BasicProperties(headers={"x-delay": 2500}, delivery_mode=2))
            confirmed[str(sent).encode()] = time.monotonic()
    except pika.exceptions.AMQPError:
        pass
    killed.join()
    assert 10 < len(confirmed) < 100_000
    delays.restart(delayed_publish=HEADERS)
    came = {}
    with delays.via.direct.channel() as direct:

        def look():
            method, _, body = direct.basic_get(queue, auto_ack=True)
            if method:
                came.setdefault(body, time.monotonic())
            return confirmed.keys() <= came.keys()

        until(look, lambda: f"{len(confirmed.keys() - came.keys())} are missing", deadline=60, pause=0)
    assert all(came[body] >= at + 2.4 for body, at in confirmed.items())


def test_off_it_passes(own):
    queue = own.queue("now")
    own.publish("", queue, headers={"x-opt-delivery-time": 1, "x-delay": 100_000})
    assert own.get(queue).properties.headers["x-delay"] == 100_000


def test_a_client_that_only_publishes_is_served_after_a_restart(own):
    """The management API shows the exchange."""
    own.restart(delayed_publish="x-delay", management_url=management(own.via))
    exchange, queue = delayed(own)
    own.restart(delayed_publish="x-delay", management_url=management(own.via))
    since = time.monotonic()
    own.publish(exchange, "key", headers={"x-delay": 400})
    arrives(own, queue, since, 0.4)


def test_what_was_parked_goes_on_when_a_queue_is_bound(own):
    own.restart(delayed_publish="x-delay", parked_retry="1s")
    exchange = own.exchange("nowhere", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    queue = own.queue("late")
    own.publish(exchange, "key", b"waits", headers={"x-delay": 100})
    until(lambda: own.metric("dlx_proxy_delayed_publishes_total", outcome="parked") == 1, "it is parked")
    own.bind(queue, exchange, "key")
    message = own.get(queue)
    assert (message.body, message.properties.headers) == (b"waits", {"x-delay": -100})
