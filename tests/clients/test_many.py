"""1,000 connections with 10 channels each, open at once."""

import asyncio
import struct

import pytest

from lab import until
from raw import (
    CHANNEL_OPEN, CHANNEL_OPEN_OK, CLOSE, CLOSE_OK, DECLARE_OK, GET, GET_OK, HEARTBEAT, OPEN_OK, PROTOCOL_HEADER, REJECT, START, TUNE,
    Frame, declare, method, open_vhost, short, start_ok, tune_ok,
)

CONNECTIONS, CHANNELS = 1000, 10
AT_ONCE = 16
"""So many log in at the same time: a broker gives each ten seconds for that."""

pytestmark = pytest.mark.once


class Client:
    """One connection, driven by asyncio."""

    def __init__(self, via, gate):
        self.via, self.gate = via, gate

    def send(self, *frames):
        self.writer.write(b"".join(map(bytes, frames)))

    async def frame(self):
        kind, channel, size = struct.unpack(">BHI", await self.reader.readexactly(7))
        frame = Frame(kind, channel, (await self.reader.readexactly(size + 1))[:-1])
        return await self.frame() if kind == HEARTBEAT else frame

    async def expect(self, ids):
        frame = await self.frame()
        assert frame.id == ids, f"{frame} instead of {ids}"
        return frame

    async def open(self):
        async with self.gate:
            self.reader, self.writer = await asyncio.open_connection(*self.via.address)
            self.writer.write(PROTOCOL_HEADER)
            await self.expect(START)
            login = self.via.broker.parameters.credentials
            self.send(start_ok(login.username, login.password))
            await self.expect(TUNE)
            self.send(tune_ok(), open_vhost(self.via.vhost))
            await self.expect(OPEN_OK)
            self.send(*(method(channel, CHANNEL_OPEN, b"\0") for channel in range(1, CHANNELS + 1)))
            opened = {(await self.expect(CHANNEL_OPEN_OK)).channel for _ in range(CHANNELS)}
            assert opened == set(range(1, CHANNELS + 1))

    async def reject_one(self, queue, fields):
        """Declare the queue as everybody does, take one message on the last channel and reject it."""
        async with self.gate:
            self.send(declare(CHANNELS, queue, durable=True, fields=fields), method(CHANNELS, GET, b"\0\0" + short(queue) + b"\0"))
            await self.expect(DECLARE_OK)
            tag = (await self.expect(GET_OK)).payload[4:12]
            while (await self.frame()).kind != 3:  # its header, then its one body frame
                pass
            self.send(method(CHANNELS, REJECT, tag + b"\0"))

    async def close(self):
        async with self.gate:
            self.send(method(0, CLOSE, b"\0\xc8\0\0\0\0\0"))
            await self.expect(CLOSE_OK)
            self.writer.close()


async def crowd(via, queue, fields):
    gate = asyncio.Semaphore(AT_ONCE)
    clients = [Client(via, gate) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(client.open() for client in clients))
    await asyncio.gather(*(client.reject_one(queue, fields) for client in clients))
    await asyncio.gather(*(client.close() for client in clients))


def test_a_thousand_connections(scene):
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    for number in range(CONNECTIONS):
        scene.publish("", source, b"%d" % number)
    until(lambda: scene.depth(source) == CONNECTIONS, lambda: f"{scene.depth(source)} published")
    asyncio.run(asyncio.wait_for(crowd(scene.via, source, [("x-dead-letter-exchange", b"S", dlx)]), 600))
    bodies = [body for _, _, body in sink.take(CONNECTIONS)]
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(CONNECTIONS)]
    assert scene.depth(source) == 0 and not sink.arrived
