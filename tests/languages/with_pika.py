"""The script of README.md by pika."""

import sys

import pika
from output import step

PROPERTIES = ["content_type", "delivery_mode", "priority", "message_id", "timestamp", "expiration", "headers"]
url, kind = sys.argv[1:]


def declare(channel, queue, **arguments):
    arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
    ok = channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind} | arguments).method
    return {"queue": ok.queue, "messages": ok.message_count, "consumers": ok.consumer_count}


def properties(body, **others):
    return pika.BasicProperties(
        content_type="text/plain", delivery_mode=2, priority=3, message_id=body, timestamp=1_600_000_000,
        headers={"text": "zwölf", "int": 7, "long": 2**40, "bool": True, "list": [1, "two"], "table": {"deep": "er"}}, **others)


def publish(channel, queue, body, **others):
    channel.basic_publish("", queue, body.encode(), properties(body, **others), mandatory=True)


def consume(channel, queue):
    """Deliveries, until the caller breaks off; fails if none comes."""
    for method, props, body in channel.consume(queue, inactivity_timeout=60):
        assert method, f"nothing in {queue}"
        content = {name: getattr(props, name) for name in PROPERTIES}
        yield method.delivery_tag, {
            "body": body, "exchange": method.exchange, "key": method.routing_key, "redelivered": method.redelivered} | content


connection = pika.BlockingConnection(pika.URLParameters(url))
first, second = connection.channel(), connection.channel()
capabilities = ["basic_nack", "consumer_cancel_notify", "exchange_exchange_bindings", "publisher_confirms"]
step("connect", capabilities={name: getattr(connection, f"{name}_supported") for name in capabilities})

first.exchange_declare("dead", "direct", durable=True)
queues = [
    declare(first, "graves"),
    declare(first, "dead letters", x_dead_letter_exchange="", x_dead_letter_routing_key="graves"),
    declare(first, "work", x_dead_letter_exchange="dead"),
    declare(first, "brief", x_dead_letter_exchange="dead", x_dead_letter_routing_key="late"),
]
for key in ("work", "late"):
    first.queue_bind("dead letters", "dead", key)
step("declare", queues=queues)

first.confirm_delivery()  # from here on basic_publish waits for the confirm
confirmed = []
for text in ("acked", "nacked", "rejected", "requeued"):
    publish(first, "work", text)
    confirmed.append(text)
try:
    publish(first, "nowhere", "unroutable")
except pika.exceptions.UnroutableError as error:
    (returned,) = error.messages
    step("publish", confirmed=confirmed, returned={
        "code": returned.method.reply_code, "text": returned.method.reply_text, "key": returned.method.routing_key, "body": returned.body})

first.basic_qos(prefetch_count=10)
deliveries = []
for tag, message in consume(first, "work"):
    deliveries.append(message)
    if message["body"] == b"nacked":
        first.basic_nack(tag, requeue=False)
    elif message["body"] == b"rejected":
        first.basic_reject(tag, requeue=False)
    elif message["body"] == b"requeued" and not message["redelivered"]:
        first.basic_nack(tag, requeue=True)
    else:
        first.basic_ack(tag)
    if len(deliveries) == 5:
        break
first.cancel()
step("consume", deliveries=deliveries)

dead = []
for tag, message in consume(first, "dead letters"):
    dead.append(message)
    if message["body"] == b"nacked":
        first.basic_nack(tag, requeue=False)
    else:
        first.basic_ack(tag)
    if len(dead) == 2:
        publish(first, "brief", "late", expiration="50")
    elif len(dead) == 3:
        break
first.cancel()
step("dead letters", deliveries=dead)

for tag, message in consume(first, "graves"):
    first.basic_ack(tag)
    break
first.cancel()
step("second death", deliveries=[message])

step("get", empty=first.basic_get("work")[0] is None)

refusals = []
try:
    declare(second, "work", x_dead_letter_exchange="other")
except pika.exceptions.ChannelClosedByBroker as error:
    refusals.append({"code": error.reply_code, "text": error.reply_text})
second = connection.channel()
try:
    second.queue_declare("missing", passive=True)
except pika.exceptions.ChannelClosedByBroker as error:
    refusals.append({"code": error.reply_code, "text": error.reply_text})
step("refused", refusals=refusals)

messages = {queue["queue"]: first.queue_delete(queue["queue"]).method.message_count for queue in queues}
first.exchange_delete("dead")
step("delete", messages=messages)

first.close()
connection.close()
step("close")
