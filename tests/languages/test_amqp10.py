"""AMQP 1.0: it passes as it is, and what its messages are in a queue of a 0-9-1 client."""

import pika
import pytest

from lab import until
from programs import javascript, steps

VHOST = "languages-amqp10"


def made(url, **arguments):
    """The queue `tests`, which is empty."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_delete("tests")
    channel.queue_declare("tests", durable=True, arguments={"x-queue-type": "classic"} | arguments)
    return channel


def test_a_library_shows_the_same(way):
    """On 3.x, where AMQP 1.0 is a plugin, the library says that the broker wants another protocol."""
    reports = []
    for url in way.urls(VHOST):
        made(way.urls(VHOST)[0]).connection.close()
        reports.append(steps(*javascript("rhea.js"), url))
    direct, proxied = reports
    assert list(direct[0]) == (["connect", "send", "receive", "detach", "refused", "close"] if way.broker.is_4x else ["connect"])
    assert proxied == direct


def test_a_message_that_no_consumer_can_have_is_shed(way):
    """RabbitMQ 4 closes the connection of a 0-9-1 consumer at each delivery of a message with a `uuid` property. So nobody can reject it by 0-9-1: it
    dies by itself, and is parked; those before and behind it arrive (10.2)."""
    if not way.broker.is_4x:
        pytest.skip("AMQP 1.0 is a plugin on 3.x")
    direct, proxied = way.urls(VHOST)
    made(direct).connection.close()
    channel = made(proxied, **{"x-message-ttl": 3000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "sink"})
    channel.queue_declare("sink", durable=True)
    publish = lambda numbers: [channel.basic_publish("", "tests", b"%d" % number, pika.BasicProperties(delivery_mode=2)) for number in numbers]
    publish(range(200))
    steps(*javascript("rhea.js"), proxied, "poison")
    publish(range(200, 400))
    lost = lambda: way.proxy.metric("dlx_proxy_link_failures_total", vhost=VHOST, link="intake")
    count = lambda queue: way.broker.messages(VHOST, queue)
    until(lambda: (count("dlx-proxy.parked"), count("dlx-proxy.intake")) == (1, 0) and count("sink") >= 400, lambda: f"{count('sink')} arrived; {lost()} losses",
          progress=lambda: (count("sink"), min(lost(), 21)))
    assert 1 <= lost() <= 21
    assert {int(channel.basic_get("sink", auto_ack=True)[2]) for _ in range(count("sink"))} == set(range(400))
    channel.connection.close()
