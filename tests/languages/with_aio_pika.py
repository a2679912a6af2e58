"""The script of README.md by aio-pika."""

import asyncio
import datetime
import sys

import aio_pika
from output import step

PROPERTIES = ["content_type", "delivery_mode", "priority", "message_id", "timestamp", "expiration", "headers"]
url, kind = sys.argv[1:]


async def declare(channel, queue, **arguments):
    arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
    return await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": kind} | arguments)


async def publish(channel, queue, body, **others):
    message = aio_pika.Message(
        body.encode(), content_type="text/plain", delivery_mode=aio_pika.DeliveryMode.PERSISTENT, priority=3, message_id=body,
        timestamp=1_600_000_000,
        headers={"text": "zwölf", "int": 7, "long": 2**40, "bool": True, "list": [1, "two"], "table": {"deep": "er"}}, **others)
    await channel.default_exchange.publish(message, queue, mandatory=True)


def described(message):
    content = {name: getattr(message, name) for name in PROPERTIES}
    return {
        "body": message.body, "exchange": message.exchange, "key": message.routing_key, "redelivered": message.redelivered} | content


async def main():
    connection = await aio_pika.connect(url)
    first = await connection.channel(publisher_confirms=True, on_return_raises=True)
    second = await connection.channel()
    step("connect", server=connection.transport.connection.server_properties)

    dead = await first.declare_exchange("dead", aio_pika.ExchangeType.DIRECT, durable=True)
    graves = await declare(first, "graves")
    dead_letters = await declare(first, "dead letters", x_dead_letter_exchange="", x_dead_letter_routing_key="graves")
    work = await declare(first, "work", x_dead_letter_exchange="dead")
    brief = await declare(first, "brief", x_dead_letter_exchange="dead", x_dead_letter_routing_key="late")
    queues = [graves, dead_letters, work, brief]
    for key in ("work", "late"):
        await dead_letters.bind(dead, key)
    counts = [queue.declaration_result for queue in queues]
    step("declare", queues=[{"queue": ok.queue, "messages": ok.message_count, "consumers": ok.consumer_count} for ok in counts])

    confirmed = []
    for text in ("acked", "nacked", "rejected", "requeued"):
        await publish(first, "work", text)
        confirmed.append(text)
    try:
        await publish(first, "nowhere", "unroutable")
    except aio_pika.exceptions.PublishError as error:
        returned = error.message
        step("publish", confirmed=confirmed, returned={
            "code": returned.delivery.reply_code, "text": returned.delivery.reply_text, "key": returned.delivery.routing_key,
            "body": returned.body})

    await first.set_qos(prefetch_count=10)
    deliveries = []
    async with work.iterator(timeout=60) as messages:
        async for message in messages:
            deliveries.append(described(message))
            if message.body == b"nacked":
                await message.nack(requeue=False)
            elif message.body == b"rejected":
                await message.reject(requeue=False)
            elif message.body == b"requeued" and not message.redelivered:
                await message.nack(requeue=True)
            else:
                await message.ack()
            if len(deliveries) == 5:
                break
    step("consume", deliveries=deliveries)

    deliveries = []
    async with dead_letters.iterator(timeout=60) as messages:
        async for message in messages:
            deliveries.append(described(message))
            if message.body == b"nacked":
                await message.nack(requeue=False)
            else:
                await message.ack()
            if len(deliveries) == 2:
                await publish(first, "brief", "late", expiration=datetime.timedelta(milliseconds=50))
            elif len(deliveries) == 3:
                break
    step("dead letters", deliveries=deliveries)

    async with graves.iterator(timeout=60) as messages:
        async for message in messages:
            await message.ack()
            break
    step("second death", deliveries=[described(message)])

    step("get", empty=await work.get(fail=False) is None)

    refusals = []
    try:
        await declare(second, "work", x_dead_letter_exchange="other")
    except aio_pika.exceptions.ChannelPreconditionFailed as error:
        refusals.append(error.args[0])
    second = await connection.channel()
    try:
        await second.get_queue("missing", ensure=True)
    except aio_pika.exceptions.ChannelNotFoundEntity as error:
        refusals.append(error.args[0])
    step("refused", refusals=refusals)

    step("delete", messages={queue.name: (await queue.delete(if_unused=False, if_empty=False)).message_count for queue in queues})
    await dead.delete()

    await first.close()
    await connection.close()
    step("close")


asyncio.run(main())
