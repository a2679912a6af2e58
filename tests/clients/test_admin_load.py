"""What many who misuse the admin port cost others: they hold no thread of a session, no more memory than docs/sizing.md says, and not the open pages."""

import base64
import contextlib
import json
import os
import re
import selectors
import socket
import threading
import time
from pathlib import Path

import pytest

from lab import DEADLINE, REPOSITORY, until
from own import own  # noqa: F401
from test_dead_letters import path

pytestmark = [pytest.mark.once, pytest.mark.proxied]

MIB = 1 << 20
LINE = b'{"raw-properties":"0000","body":{"encoding":"text","text":"","cut":false}}\n'
BESIDE = {"admin", "redrives"}
"""Threads on which no session and no link runs."""


class Asker:
    """Who asks at the admin port of a proxy, as the broker's administrator or as a stranger, from the same address."""

    def __init__(self, own):
        self.proxy, self.vhost = own.proxy, own.via
        self.login = own.via.broker.parameters.credentials

    def head(self, target, wrong=False, length=None):
        """A request without its body."""
        login = "nobody:wrong" if wrong else f"{self.login.username}:{self.login.password}"
        login = base64.b64encode(login.encode()).decode()
        lines = [f"{'GET' if length is None else 'POST'} {target} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Basic {login}", "X-Dlx-Proxy-Request: 1"]
        return "\r\n".join(lines + ([] if length is None else [f"Content-Length: {length}"]) + ["", ""]).encode()

    def of_queue(self, queue, rest):
        return path(self.vhost, queue, rest)

    def connect(self, window=None):
        client = socket.socket()
        if window:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        client.settimeout(DEADLINE)
        client.connect(self.proxy.admin)
        return client

    def answer(self, client):
        """All that comes: status, and body as text."""
        came = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                came += piece
        status, _, body = came.partition(b"\r\n\r\n")
        return int(status.split()[1]) if status else None, body.decode(errors="replace")

    def get(self, target):
        with self.connect() as client:
            client.sendall(self.head(target))
            return self.answer(client)

    def send(self, queue, body, wrong=False):
        """An import."""
        with self.connect() as client:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(self.head(self.of_queue(queue, "/import"), wrong, len(body)) + body)
            return self.answer(client)


@contextlib.contextmanager
def flood(own, requests, connections=64):
    """So many connections at all times, each with the next of these requests; who is answered, or let go, comes again."""
    stop, selector, sent, count = threading.Event(), selectors.DefaultSelector(), {}, [0]

    def come():
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(own.proxy.admin)
        sent[client] = requests[count[0] % len(requests)]
        count[0] += 1
        selector.register(client, selectors.EVENT_WRITE)

    def again(client):
        selector.unregister(client)
        client.close()
        del sent[client]
        come()

    def run():
        for _ in range(connections):
            come()
        while not stop.is_set():
            for key, event in selector.select(0.1):
                client = key.fileobj
                try:
                    if event & selectors.EVENT_WRITE:
                        client.send(sent[client])
                        selector.modify(client, selectors.EVENT_READ)
                    elif not client.recv(65536):
                        again(client)
                except OSError:
                    again(client)
        for client in [*sent]:
            client.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


def strangers(asker, queue):
    """What whoever cannot log in may ask: looks, exports, imports that do not go on, live answers; and halves of requests."""
    of = lambda rest, **more: asker.head(asker.of_queue(queue, rest), wrong=True, **more)
    deaths = asker.of_queue(queue, "").rpartition("/queues/")[0] + "/deaths"
    live = asker.head(deaths, wrong=True).replace(b"Host:", b"Accept: text/event-stream\r\nHost:")
    return [of(""), of("/export"), of("/import", length=1000), of("/groups"), live, b"GET /rea", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"]


def fill(own, label, bodies):
    """A queue with such messages."""
    queue = own.queue(label, x_queue_type="classic")
    for body in bodies:
        own.publish(queue, body)
    until(lambda: own.depth(queue) == len(bodies), "all messages")
    return queue


def processor_time(pid):
    """Of the threads of a process, in seconds: those of the sessions, links and handshakes, and those beside them."""
    sums = [0.0, 0.0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text()
        sums[name in BESIDE] += int(spent.split()[0]) / 1e9
    return sums


def memory(pid, which):
    """In MiB."""
    return int(re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def admitted(call):
    """The answer of somebody who asks again while there is no room."""
    return until(lambda: next((answer for answer in [call()] if answer[0] not in (None, 503)), None), "room")


def side_by_side(calls):
    results = [None] * len(calls)

    def call(place):
        results[place] = calls[place]()

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_the_threads_of_sessions_do_not_work_for_the_admin_port(own):
    """By their processor time, which no load of the machine changes: a session waits for what its thread does, and for nothing else in the proxy."""
    asker, pid = Asker(own), own.proxy.process.pid
    queue = fill(own, "dead", [b"\t" * 65536] * 32)
    asker.get(asker.of_queue(queue, "?limit=1"))  # known from here on
    file, export = LINE * (4 * MIB // len(LINE)) + b"x", asker.of_queue(queue, "/export")
    before = processor_time(pid)
    with flood(own, strangers(asker, queue)) as count:
        answers = side_by_side([lambda: admitted(lambda: asker.send(queue, file))] * 2 + [lambda: admitted(lambda: asker.get(export))] * 2)
        until(lambda: count[0] > 500, "a flood")
    sessions, beside = (after - before for before, after in zip(before, processor_time(pid)))
    print(f"{own.via.broker.version}: {count[0]} requests; sessions {sessions * 1000:.0f} ms of processor, beside them {beside * 1000:.0f} ms; load {os.getloadavg()[0]}")
    assert [status for status, _ in answers] == [400, 400, 200, 200]
    assert beside > 0.1, "it was no load"
    assert sessions < beside / 10


def test_open_pages_are_answered_beside_a_flood_of_strangers(own):
    asker = Asker(own)
    queue = own.queue("dead")
    with flood(own, strangers(asker, queue), connections=100) as count:
        until(lambda: count[0] > 100, "a flood")
        for _ in range(5):
            for page in ("/healthz", "/readyz", "/metrics"):
                with asker.connect() as client:
                    client.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % page.encode())
                    assert asker.answer(client)[0] == 200, page
            time.sleep(0.1)
    # Nobody is locked out.
    assert admitted(lambda: asker.get(asker.of_queue(queue, "")))[0] == 200


def test_memory_of_files_is_within_the_formula_of_the_documents(own):
    """Exports of a queue that nobody reads, then imports that would fill the memory with lines."""
    look_bytes, looks = 16, 4
    own.restart(look_bytes=f"{look_bytes}MiB", max_looks=looks, admin_timeout="1m")
    asker, pid = Asker(own), own.proxy.process.pid
    queue = fill(own, "dead", [b"\t" * (MIB - 1000)] * look_bytes)
    idle = memory(pid, "VmRSS")
    held, begun = [], []
    for _ in range(14):
        held.append(asker.connect(window=4096))
        held[-1].sendall(asker.head(asker.of_queue(queue, "/export")))
        begun.append(held[-1].recv(12))
    assert {b"HTTP/1.1 200"} <= {*begun} <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}, begun
    refused = [client for client, answer in zip(held, begun) if answer.endswith(b"503")]
    words = {json.loads(client.recv(65536).partition(b"\r\n\r\n")[2])["detail"] for client in refused}
    for client in held:
        client.close()
    after = memory(pid, "VmHWM")
    assert all("leave no room" in word for word in words), words
    body = LINE * ((look_bytes * MIB - 1000) // len(LINE)) + b"x"
    answers = side_by_side([lambda: asker.send(queue, body)] * 4)
    assert {400} <= {status for status, _ in answers} <= {400, 503}, answers
    # None of it is held any more.
    until(lambda: asker.get(asker.of_queue(queue, "/export?limit=1"))[0] == 200, "room for an export")

    formula = "+ 3 × look-bytes + 4 × the largest dead letter + max-looks × 8 MiB, if the admin port has its API"
    assert formula in (REPOSITORY / "docs/sizing.md").read_text()
    bound = 3 * look_bytes + 4 * 1 + 8 * looks + (14 + 4) * 32 / 1024
    most = memory(pid, "VmHWM") - idle
    print(f"{own.via.broker.version}: {idle:.0f} MiB idle; {after - idle:.0f} MiB more with {len(held)} exports, {most:.0f} with imports; the formula says {bound:.0f}")
    assert most <= bound
