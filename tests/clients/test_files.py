"""Exports and imports of dead letters: what comes back is what a client of the proxy read, in order, and nobody gains anything by it. What they cost
others: no thread of a session, and no more memory than docs/reference/limits.md says."""

import base64
import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from console import ask, command, die, ends, live, look, management, of_queue, order, quoted, request
from lab import DEADLINE, REPOSITORY, until
from scene import user

MIB = 1 << 20
LINE = b'{"raw-properties":"0000","body":{"encoding":"text","text":"","cut":false}}\n'
SIZED = lambda bytes: struct.pack(">I", len(bytes)) + bytes
TABLE = lambda name, value: bytes([len(name)]) + name + value


def export(scene, queue, *words):
    """The lines that the command writes; nothing is left out."""
    code, lines, notes = command(scene, "export", queue, *words)
    assert code == 0, notes
    return lines


def imported(scene, lines, queue, *words):
    return command(scene, "import", queue, *words, file=lines)


def read(scene, queue, count):
    """What a client of the proxy reads: properties and body of each message, in order."""
    read = []
    for _ in range(count):
        message = scene.get(queue)
        scene.channel.basic_ack(message.method.delivery_tag)
        read.append((vars(message.properties), message.body))
    return read


@pytest.mark.every_broker
def test_what_was_exported_comes_back_as_it_was(scene):
    queue, same = (scene.queue(label, kind="classic") for label in ("dead", "same"))
    orders, _ = die(scene, (queue, same), 4)
    for each in (queue, same):
        scene.publish("", each, b"\xff\x00", message_id="binary")
        scene.has(each, 5)
    lines = export(scene, queue)
    first = json.loads(lines.splitlines()[0])
    assert (first["source-queue"], first["reason"], first["body"]["text"]) == (orders, "rejected", '{"number": 0}')
    scene.has(queue, 5)
    expected = read(scene, queue, 5)
    assert imported(scene, lines, queue) == (0, "imported  5\nleft      0\nunsure    0\n", "")
    assert read(scene, queue, 5) == expected == read(scene, same, 5)
    code, printed, notes = imported(scene, lines, same, "--output", "json")
    assert (code, json.loads(printed)["imported"]) == (0, 5), notes
    ends(scene, order(scene, same, source=orders), gone=2)  # an imported letter still knows where it died

    part = export(scene, same, "--reason", "expired", "--limit", "1")
    assert len(part.splitlines()) == 1
    assert imported(scene, part.replace(r'{\"number\": 1}', "mended"), queue)[0] == 0
    assert read(scene, queue, 1)[0][1] == b"mended"


def test_what_the_management_api_prints_is_imported(scene):
    queue, same = scene.queue("dead", kind="classic"), scene.queue("same", kind="classic")
    headers = {"n": 1, "s": "é", "list": [True, {"a": False}]}
    scene.publish("", queue, b"\xff\x00", message_id="m", priority=3, headers=headers, expiration="600000")
    url = f"http://{management(scene.via).split('@')[1]}/api/queues/{quoted(scene.via.vhost)}/{quoted(queue)}/get"
    body = json.dumps({"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}).encode()
    headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=DEADLINE) as answer:
        printed = answer.read().decode()
    one = (0, "imported  1\nleft      0\nunsure    0\n", "")
    assert imported(scene, printed, same) == one
    count = 1
    if not scene.via.broker.is_4x:  # RabbitMQ 4 does not bring this rabbitmqadmin any more
        host, port = management(scene.via).split("@")[1].split(":")
        with urllib.request.urlopen(f"http://{host}:{port}/cli/rabbitmqadmin", timeout=DEADLINE) as tool:
            words = [sys.executable, "-", "-H", host, "-P", port, "-V", scene.via.vhost, "get", f"queue={queue}", "count=5", "-f", "raw_json"]
            printed = subprocess.run(words, input=tool.read(), stdout=subprocess.PIPE, check=True, timeout=DEADLINE).stdout.decode()
        scene.has(queue, 1)
        assert imported(scene, printed, same, "-") == one
        count = 2
    scene.has(queue, 1)
    assert read(scene, same, count) == count * read(scene, queue, 1)
    code, _, said = imported(scene, printed.replace('"payload"', '"pay"'), same)
    assert (code, said) == (1, "dlx-proxy: message 1: it has no payload\n")


def test_an_export_that_is_not_whole_says_so(own):
    """By its last line, by what the command says beside, and by its exit code."""
    own.restart(browse_limit=10)
    queue = own.fill(own.queue("dead"), [b"m"] * 10)

    def exported(*words):
        code, lines, said = command(own, "export", queue, *words)
        return code, len(lines.splitlines()), said.splitlines()

    assert exported() == (0, 10, []), "as many as the limit are all"
    for _ in range(2):
        own.publish("", queue)
    own.has(queue, 12)
    first = ["dlx-proxy: The search ended after 10 messages of 12: one search takes no more messages."]
    assert exported() == exported("--limit", "11") == (3, 10, first)
    assert exported("--body", "nothing") == (3, 0, first), "a filter passes no more, either"
    assert exported("--limit", "4")[:2] == (0, 4), "it was asked for so many"
    with live(own.via, of_queue(own.via, queue, "/dead-letters/export")) as answer:
        *messages, last = answer.read().decode().splitlines()
    end = json.loads(last)["end"]
    assert (len(messages), end["stopped"], end["scanned"], end["ready"]) == (10, "messages", 10, 12), end


def test_two_exports_of_a_queue_have_all_of_it(own):
    queue = own.fill(own.queue("dead"), [b"m"] * 300)
    with ThreadPoolExecutor() as threads:
        exports = [threads.submit(command, own, "export", queue) for _ in range(2)]
        done = [export.result() for export in exports]
    assert [(code, len(lines.splitlines()), said) for code, lines, said in done] == [(0, 300, "")] * 2


def test_what_cannot_be_imported_is_named(scene):
    queue, full = scene.fill(scene.queue("dead", kind="classic"), [b"m"]), scene.queue("full", kind="classic", max_length=2, overflow="reject-publish")
    line = export(scene, queue)
    for lines, to, words in (
        (line + "\n{}\n" + line, queue, "line 3: this is no line of an export: missing field"),
        (line, scene.name("nothing"), "NOT_FOUND - no queue"),
        (line, "dlx-proxy.intake", "one of the proxy's own"),
    ):
        code, _, why = imported(scene, lines, to)
        assert code == 1 and words in why, why
    scene.has(queue, 1)
    code, said, why = imported(scene, line * 4, full)
    assert (code, said.split()) == (3, "imported 2 left 0 unsure 0 refused 3 4".split()), why
    assert imported(scene, line * 4, full)[0] == 65


def test_nobody_gains_anything(scene):
    via = scene.via
    queue, other = (scene.queue(label, kind="classic") for label in ("dead", "other"))
    headers = TABLE(b"CC", b"A" + SIZED(b"S" + SIZED(other.encode()))) + TABLE(b"x-dlx-proxy-user-id", b"S" + SIZED(b"admin"))
    properties = b"\x20\x10" + SIZED(headers) + b"\x05guest"
    line = json.dumps({"raw-properties": properties.hex(), "body": {"encoding": "text", "text": "a body", "cut": False}}).encode()
    with user(via, "clerk", "^$", ".*", "^$"), user(via, "reader", "^$", "^$"):
        for who, more, status in (("reader", {}, 403), ("clerk", {"header": False}, 403), ("clerk", {"password": "wrong"}, 401), ("clerk", {}, 200)):
            said, answer, _ = ask(via, of_queue(via, queue, "/dead-letters/import"), who, method="POST", file=line, **more)
            assert said == status, answer
    assert (scene.depth(queue), scene.depth(other)) == (1, 0), "a CC of a file routes nowhere"
    ((found, _),) = read(scene, queue, 1)
    assert (found["headers"], found["user_id"]) == ({"CC": [other]}, None)


# --- What they cost others -------------------------------------------------------------------------------------------------------------------


def send(own, queue, body):
    """The status of an import, with which a full proxy answers before it has read all of it; asked for again while there is no room."""

    def status():
        with contextlib.suppress(OSError):
            return ask(own.via, of_queue(own.via, queue, "/dead-letters/import"), method="POST", file=body)[0]

    return until(lambda: (said := status()) not in (None, 503) and said, "room")


def processor_time(pid):
    """In seconds: of the threads of sessions, links and handshakes, and of those beside them."""
    sums = [0.0, 0.0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text()
        sums[name in ("admin", "redrives")] += int(spent.split()[0]) / 1e9
    return sums


def memory(pid, which):
    """In MiB."""
    return int(re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def test_the_threads_of_sessions_do_not_work_for_the_admin_port(own):
    """By their processor time, which no load of the machine changes: a session waits for what its thread does, and for nothing else in the proxy."""
    pid, queue = own.proxy.process.pid, own.fill(own.queue("dead", kind="classic"), [b"\t" * 65536] * 32)
    look(own, queue, limit=1)  # known from here on
    before = processor_time(pid)
    with ThreadPoolExecutor() as threads:
        files = [threads.submit(send, own, queue, LINE * (4 * MIB // len(LINE)) + b"x") for _ in range(2)]
        for _ in range(4):
            export(own, queue)
        assert [file.result() for file in files] == [400, 400]
    sessions, beside = (after - before for before, after in zip(before, processor_time(pid)))
    assert beside > 0.1, "it was no load"
    assert sessions < beside / 10


def test_memory_of_files_is_within_the_formula_of_the_documents(own):
    """Exports of a queue that nobody reads, then imports that would fill the memory with lines."""
    browse_bytes, looks = 16, 4
    own.restart(browse_bytes=f"{browse_bytes}MiB", max_browses=looks, admin_timeout="1m")
    pid, queue = own.proxy.process.pid, own.fill(own.queue("dead", kind="classic"), [b"\t" * (MIB - 1000)] * browse_bytes)
    idle = memory(pid, "VmRSS")
    asked = request(own.via, of_queue(own.via, queue, "/dead-letters/export"))
    head = f"GET {asked.selector} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {asked.get_header('Authorization')}\r\n\r\n".encode()
    with contextlib.ExitStack() as held:
        begun = []
        for _ in range(14):
            client = held.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(DEADLINE)
            client.connect(own.proxy.admin)
            client.sendall(head)
            begun.append(client.recv(12))
        assert {b"HTTP/1.1 200"} <= {*begun} <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}, begun
    body = LINE * ((browse_bytes * MIB - 1000) // len(LINE)) + b"x"
    with ThreadPoolExecutor() as threads:
        assert {file.result() for file in [threads.submit(send, own, queue, body) for _ in range(4)]} == {400}
    until(lambda: command(own, "export", queue, "--limit", "1")[0] == 0, "room for an export: none of it is held any more")
    formula = "+ 3 × browse-bytes + 4 × the largest dead letter + max-browses × 8 MiB, if the admin port has its API"
    assert formula in (REPOSITORY / "docs/reference/limits.md").read_text()
    bound, most = 3 * browse_bytes + 4 * 1 + 8 * looks + (14 + 4) * 32 / 1024, memory(pid, "VmHWM") - idle
    print(f"{own.via.broker.version}: {idle:.0f} MiB idle, {most:.0f} more with exports and imports; the formula says {bound:.0f}")
    assert most <= bound
