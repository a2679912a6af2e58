"""Exports and imports of dead letters: what comes back is what a client of the proxy read, in order, and nobody gains anything by it."""

import base64
import json
import struct
import subprocess
import urllib.request
from types import SimpleNamespace

import pytest

from lab import DEADLINE, until
from own import own  # noqa: F401, a fixture
from test_dead_letters import ask, command, die, path, typed
from test_redrives import ended, order, taken

pytestmark = [pytest.mark.once, pytest.mark.proxied, pytest.mark.every_broker]

SIZED = lambda octets: struct.pack(">I", len(octets)) + octets
TABLE = lambda name, value: bytes([len(name)]) + name + value


def export(scene, queue, *words):
    """The lines that the command writes, and what it says beside; nothing is left out."""
    code, lines, notes = command(scene, "export", "--queue", queue, *words)
    assert code == 0, notes
    return lines, notes


def run(scene, lines, *words):
    """The command `import` with that file: exit code, what it prints, what it says beside."""
    done = subprocess.run(**typed(scene, "import", *words), input=lines.encode(), capture_output=True, timeout=DEADLINE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def read(scene, queue, count):
    """What a client of the proxy reads: properties and body of each message, in order."""
    return [(vars(properties), body) for _, properties, body in taken(scene, queue, count)]


def test_what_was_exported_comes_back_as_it_was(scene):
    dead, same = (scene.queue(label, kind="classic") for label in ("dead", "same"))
    orders, _ = die(scene, (dead, same), 4)
    for queue in (dead, same):
        scene.publish("", queue, b"\xff\x00", message_id="binary")
        until(lambda: scene.depth(queue) == 5, "all messages")
    lines, notes = export(scene, dead)
    assert notes == "" and len(lines.splitlines()) == 5
    first = json.loads(lines.splitlines()[0])
    assert (first["source-queue"], first["reason"], first["body"]["text"]) == (orders, "rejected", '{"number": 0}')
    until(lambda: scene.depth(dead) == 5, "all stay")
    expected = read(scene, dead, 5)
    assert run(scene, lines, "--queue", dead) == (0, "imported  5\nleft      0\nunsure    0\n", "")
    assert read(scene, dead, 5) == expected == read(scene, same, 5)

    code, printed, notes = run(scene, lines, "--queue", same, "--output", "json")
    assert (code, json.loads(printed)["imported"]) == (0, 5), notes
    moved = ended(scene, order(scene, same, source=orders))
    assert (moved["gone"], scene.depth(orders)) == (2, 2), "an imported letter still knows where it died"


def test_a_body_that_was_mended_and_a_part_of_a_queue(scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 4)
    lines, _ = export(scene, dead, "--reason", "rejected", "--limit", "1")
    assert len(lines.splitlines()) == 1
    assert run(scene, lines.replace(r'{\"number\": 0}', "mended"), "--queue", dead)[0] == 0
    bodies = [body for _, body in read(scene, dead, 5)]
    assert bodies[-1] == b"mended"


def test_an_export_that_is_not_whole_says_so(own):
    """By its last line, by what the command says beside, and by its exit code."""
    own.restart(look_limit=10)
    queue = own.queue("dead")
    scene = SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, vhost=own.via.vhost, proxy=own.proxy))

    def exported(*words):
        code, lines, said = command(scene, "export", "--queue", queue, *words)
        return code, len(lines.splitlines()), said.splitlines()

    def filled(count, more):
        for _ in range(more):
            own.publish(queue)
        until(lambda: own.depth(queue) == count, "all messages")

    filled(10, more=10)
    assert exported() == (0, 10, []), "as many as the limit are all"
    filled(12, more=2)
    first = ["dlx-proxy: the first 10 of 12 messages were looked at"]
    assert exported() == exported("--limit", "11") == (3, 10, first)
    assert exported("--body", "nothing") == (3, 0, first), "a filter passes no more, either"
    code, lines, _ = exported("--limit", "4")
    assert (code, lines) == (0, 4), "it was asked for so many"
    request = urllib.request.Request("http://%s:%d" % own.proxy.admin + path(scene.via, queue, "/export"))
    login = own.via.broker.parameters.credentials
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode())
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        *messages, last = answer.read().decode().splitlines()
    end = json.loads(last)["end"]
    assert (len(messages), end["stopped"], end["looked-at"], end["ready"]) == (10, "messages", 10, 12), end
    code, printed, _ = run(scene, "\n".join(messages), "--queue", queue)
    assert (code, printed.splitlines()[0]) == (0, "imported  10")


def test_what_is_no_message_is_named_and_nothing_is_imported(scene):
    dead = scene.queue("dead", kind="classic")
    scene.publish("", dead)
    until(lambda: scene.depth(dead) == 1, "the message")
    line, _ = export(scene, dead)
    code, _, why = run(scene, line + "\n{}\n" + line, "--queue", dead)
    assert code == 1 and "line 3: this is no line of an export: missing field" in why
    until(lambda: scene.depth(dead) == 1, "the message only")
    code, _, why = run(scene, line, "--queue", scene.name("nothing"))
    assert code == 1 and "NOT_FOUND - no queue" in why
    code, _, why = run(scene, line, "--queue", "dlx-proxy.intake")
    assert code == 1 and "one of the proxy's own" in why


def test_what_a_full_queue_refuses_is_said(scene):
    source, full = scene.queue("source", kind="classic"), scene.queue("full", kind="classic", max_length=2, overflow="reject-publish")
    for _ in range(4):
        scene.publish("", source)
    until(lambda: scene.depth(source) == 4, "all messages")
    lines, _ = export(scene, source)
    code, said, why = run(scene, lines, "--queue", full)
    assert (code, said.split()) == (3, "imported 2 left 0 unsure 0 refused 3 4".split()), why
    assert run(scene, lines, "--queue", full)[0] == 65


def test_nobody_gains_anything(scene):
    via = scene.via
    dead, other = (scene.queue(label, kind="classic") for label in ("dead", "other"))
    headers = TABLE(b"CC", b"A" + SIZED(b"S" + SIZED(other.encode()))) + TABLE(b"x-dlx-proxy-user-id", b"S" + SIZED(b"admin"))
    properties = b"\x20\x10" + SIZED(headers) + b"\x05guest"
    line = json.dumps({"raw-properties": properties.hex(), "body": {"encoding": "text", "text": "a body", "cut": False}}).encode()
    via.broker.make((), [("clerk", "secret"), ("reader", "secret")],
                    [("clerk", via.vhost, "^$", ".*", "^$"), ("reader", via.vhost, "^$", "^$", ".*")])

    def post(user, **more):
        return ask(via, path(via, dead, "/import"), user, method="POST", file=line, **more)[:2]

    try:
        status, problem = post("reader")
        assert status == 403 and "ACCESS_REFUSED" in problem["detail"], problem
        assert post("clerk", header=False)[0] == 403
        assert post("clerk", password="wrong")[0] == 401
        status, answer = post("clerk")
        assert (status, answer["imported"]) == (200, 1), answer
    finally:
        via.broker.unmake((), ["clerk", "reader"])
    assert (scene.depth(dead), scene.depth(other)) == (1, 0), "a CC of a file routes nowhere"
    ((found, _),) = read(scene, dead, 1)
    assert (found["headers"], found["user_id"]) == ({"CC": [other]}, None)
