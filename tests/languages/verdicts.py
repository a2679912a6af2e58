"""Judges the first delivery of `work` COUNT times, and the one after a lost connection once: verdicts.py URL COUNT."""

import asyncio
import sys

import aio_pika

from output import step


async def verdict(message, **said):  # reason, error, delay_ms, dead, headers
    channel = message.channel
    if "dlx_proxy" in channel.connection.server_properties:
        said = {name.replace("_", "-"): value[:4096] if isinstance(value, str) else value for name, value in said.items()}
        await channel.queue_unbind("any", "dlx-proxy.verdict", str(message.delivery_tag), said)


async def main(url, count):
    connection = await aio_pika.connect_robust(url, reconnect_interval=0.1)
    channel = await connection.channel()
    await channel.set_qos(1)
    queue = await channel.declare_queue("work", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    deliveries = asyncio.Queue()
    await queue.consume(deliveries.put)
    first = await deliveries.get()
    for number in range(int(count)):
        await verdict(first, reason=f"number {number}")
    step("judged")
    again = await deliveries.get()
    await again.reject(requeue=False)
    last = await deliveries.get()
    await verdict(last, reason="no address", error="a trace" * 100_000, headers={"tenant": 7})
    await last.reject(requeue=False)
    step("done")
    await connection.close()


asyncio.run(main(*sys.argv[1:]))
