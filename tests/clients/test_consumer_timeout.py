"""From 4.3 on a quorum queue takes a message back that a consumer holds for too long, and cancels the consumer, or closes the channel of a client that
does not know `basic.cancel` (S9.5). Clients of the proxy see what clients of the broker see."""

import pika
import pytest

from lab import PATIENT, until

pytestmark = [pytest.mark.once]

TIMEOUT = 500
"""In milliseconds."""


@pytest.fixture(params=["through", "direct"])
def consuming(scene, request):
    """Makes a channel that consumes a queue under the tag `c` and holds its only message."""
    via = scene.via
    if not via.broker.is_from(4, 3):
        pytest.skip("up to 4.2 the channel is closed, whatever the client knows")
    queue = scene.name("held")
    scene.queues.append(queue)
    dlx, sink = scene.target()
    scene.channel.queue_declare(
        queue, durable=True, arguments={"x-queue-type": "quorum", "x-consumer-timeout": TIMEOUT, "x-dead-letter-exchange": dlx})
    address = via.broker.address if request.param == "direct" or via.proxy is None else via.proxy.address
    opened = []

    def consume(knows_cancel):
        parameters = pika.ConnectionParameters(
            *address, via.vhost, via.broker.parameters.credentials,
            client_properties={"capabilities": {"consumer_cancel_notify": knows_cancel}}, **PATIENT)
        connection = pika.BlockingConnection(parameters)
        opened.append(connection)
        channel, held = connection.channel(), []
        channel.basic_consume(queue, lambda _, method, *rest: held.append(method), consumer_tag="c")
        scene.publish("", queue, b"held")
        until(lambda: held, "the delivery", pause=lambda: connection.process_data_events(0.05))
        return connection, channel, queue, held, sink

    yield consume
    for connection in opened:
        if connection.is_open:
            connection.close()


def test_a_client_that_knows_it_is_sent_a_cancel(consuming):
    connection, channel, queue, _, sink = consuming(True)
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    until(lambda: cancelled, "basic.cancel", pause=lambda: connection.process_data_events(0.05))
    assert cancelled[0].method.consumer_tag == "c"
    ready = lambda: connection.channel().queue_declare(queue, passive=True).method.message_count
    until(lambda: ready() == 1, "the message is back, and the queue is still there")
    # The client consumes again, under another name, and the message dies as any other.
    again = []
    channel.basic_consume(queue, lambda _, method, *rest: again.append(method), consumer_tag="d")
    until(lambda: again, "the message again", pause=lambda: connection.process_data_events(0.05))
    assert again[0].redelivered
    channel.basic_reject(again[0].delivery_tag, requeue=False)
    assert sink.one()[2] == b"held"


def test_the_channel_keeps_the_name_of_the_consumer(consuming):
    connection, channel, queue, _, _ = consuming(True)
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    until(lambda: cancelled, "basic.cancel", pause=lambda: connection.process_data_events(0.05))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.basic_consume(queue, lambda *_: None, consumer_tag="c")
    assert (closed.value.reply_code, closed.value.reply_text) == (530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'")


def test_the_channel_of_another_client_is_closed(consuming):
    connection, channel, queue, _, _ = consuming(False)
    closed = []
    channel._impl.add_on_close_callback(lambda _, reason: closed.append(reason))
    until(lambda: closed, "channel.close", pause=lambda: connection.process_data_events(0.05))
    assert closed[0].reply_code == 406 and "timed out" in closed[0].reply_text, closed
    assert connection.is_open
    ready = lambda: connection.channel().queue_declare(queue, passive=True).method.message_count
    until(lambda: ready() == 1, "the message is back")
