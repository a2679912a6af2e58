"""Dead letters that are sent back, or removed: what goes where, and that only who may moves anything. (That nothing is lost, comes twice or in another
order, in alarms and while brokers end: tests/simulation, tests/faults.)"""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading

import pytest

from console import KINDS, answer, ask, command, die, ended, ends, kind, look, numbers, of_queue, of_vhost, order, rows, typed
from lab import DEADLINE, until
from scene import user

pytestmark = pytest.mark.every_broker


def shown(scene, queue):
    """What the command line knows of the redrives of a queue, the newest first."""
    code, printed, said = command(scene, "list", "--output", "json", group="dead-letters redrives")
    assert (code, said) == (0, ""), said
    return [redrive for redrive in json.loads(printed)["redrives"] if redrive["queue"] == queue]


@pytest.mark.parametrize("name", [name for name in KINDS if name != "stream"])
def test_what_died_goes_back_to_its_queue(scene, name):
    queue = scene.queue("dead", **kind(scene, name))
    orders, _ = die(scene, (queue,), 6)
    before = numbers(scene, queue)
    ends(scene, order(scene, queue, source=orders), ready=6, seen=6, gone=3, stay={})
    assert numbers(scene, queue) == [number for number in before if number % 2], "the others are in their places"
    for number in before:
        if number % 2 == 0:
            method, properties, body = scene.get(orders)
            assert json.loads(body) == {"number": number}
            assert (method.exchange, method.routing_key, method.redelivered) == ("", orders, False)
            assert (properties.headers["tenant"], properties.message_id) == (number % 3, f"m{number}")


def test_what_dies_again_says_that_it_was_redriven(scene):
    """In a queue that the proxy has not taken over, too: there the broker routes by the key that the message has."""
    shop, dlx, queue = scene.exchange("shop", "direct"), scene.exchange("dlx", "direct"), scene.queue("dead", kind="classic")
    orders = scene.made("orders", kind="classic", dlx=dlx)
    scene.bind(orders, shop, "new")
    scene.bind(queue, dlx, "new")
    scene.publish(shop, "new")
    for times in range(3):
        with scene.via.direct.channel() as direct:
            scene.reject(orders, channel=direct)
            scene.has(queue, 1)
        (letter,) = look(scene, queue)["dead-letters"]
        assert (letter["redriven"], letter["source-queue"]) == (times, orders), letter
        ends(scene, order(scene, queue), gone=1, stay={})
    message = scene.get(orders)
    assert (message.method.exchange, message.method.routing_key) == (shop, "new")


def test_a_number_a_rate_another_queue_and_what_stays(scene):
    queue, other = scene.queue("dead", kind="quorum"), scene.queue("other", kind="classic")
    die(scene, (queue,), 6)
    before = numbers(scene, queue)
    ends(scene, order(scene, queue, to_queue=other, limit=2, rate=1000, history="new"), gone=2)
    for number in before[:2]:
        _, properties, body = scene.get(other)
        assert json.loads(body) == {"number": number} and "x-death" not in properties.headers
    ends(scene, order(scene, queue, to_queue=scene.name("nobody")), gone=0, stay={"unroutable": 4})
    assert sorted(numbers(scene, queue)) == sorted(before[2:])
    full = scene.queue("full", max_length=1, overflow="reject-publish")
    done = ends(scene, order(scene, queue, to_queue=full, rate=20))
    assert done["stay"] == {"nacked": 4 - done["gone"]} and 1 <= done["gone"] < 4, done
    assert len(numbers(scene, queue)) == 4 - done["gone"] and scene.depth(full) == done["gone"]


def test_a_filter_and_an_id_mean_the_same_messages_for_all(scene):
    """Of a large body a list keeps the beginning, while a purge has all of it."""
    queue, begins = scene.queue("dead", kind="classic"), b"a" * (1 << 20)
    scene.fill(queue, (begins + b" WANTED", begins + b" 1", begins + b" 2", b"WANTED 3"))
    found = [look(scene, queue, rest, body="WANTED")["matched"] for rest in ("", "/groups")]
    found.append(order(scene, queue, "purges", 200, body="WANTED", dry_run="true")["matched"])
    found.append(len(command(scene, "export", queue, "--body", "WANTED")[1].splitlines()))
    found.append(ended(scene, order(scene, queue, "purges", body="WANTED"))["gone"])
    assert found == [1] * 5
    ids = [letter["id"] for letter in look(scene, queue)["dead-letters"]]
    assert ids == [json.loads(line)["id"] for line in command(scene, "export", queue)[1].splitlines()] and len(set(ids)) == 3
    shown = look(scene, queue, f"/{ids[1]}")
    assert shown["body"]["cut"] and len(shown["body"]["text"]) == 256 << 10
    ends(scene, order(scene, queue, "purges", id=ids[1]), gone=1)
    assert [letter["id"] for letter in look(scene, queue)["dead-letters"]] == [ids[0], ids[2]]


def test_a_filter_finds_what_is_meant_in_a_long_queue(scene):
    """More messages stay than a look passes (`browse-limit`), and they stay in their order."""
    count, every = 12_000, 60
    queue, other = scene.queue("dead", kind="quorum"), scene.queue("other", kind="classic")
    meant = set(range(every - 1, count, every))
    scene.fill(queue, [b"%s %d" % (b"meant" if number in meant else b"other", number) for number in range(count)])
    ends(scene, order(scene, queue, to_queue=other, body="meant"), seen=count, gone=len(meant), stay={}, cause=None)
    for place, expected in ((other, sorted(meant)), (queue, sorted(set(range(count)) - meant))):
        assert [int(body.split()[1]) for *_, body in scene.all_of(place, len(expected))] == expected, "in their order"


def test_what_a_message_says_of_its_past_takes_the_right_to_publish_so(scene):
    """Whoever may publish into a queue can write any `x-death`, and consumers behind the proxy read exchange and key of that."""
    via = scene.via
    bank, mine, internal = scene.exchange("bank", "direct"), scene.exchange("mine", "topic"), scene.exchange("internal", internal=True)
    gone, queue, source = scene.name("gone"), scene.queue("dead", kind="classic"), scene.queue("source", kind="classic")
    ways = [(bank, "approved"), (mine, "ok"), (mine, "bad"), (gone, "old"), (scene.name("none"), "old"), (internal, "in"), ("", "any")]
    with via.direct.channel() as direct:
        for exchange, key in ways:
            death = {"queue": source, "reason": "rejected", "exchange": exchange, "routing-keys": [key], "count": 1}
            scene.publish("", queue, b"forged", channel=direct, headers={"x-death": [death]})
        scene.has(queue, len(ways))
    with user(via, "clerk", f"^{queue}$", f"^(amq\\.default|{mine}|{gone}|{internal})$", f"^{queue}$", topics=(mine, "^ok$")):
        done = ends(scene, order(scene, queue, user="clerk"), gone=4)
    refused = {re.sub(r".*access to (\w+ '[^']*').*", r"\1", why) for why in done["stay"]}
    assert refused == {f"exchange '{bank}'", f"exchange '{scene.name('none')}'", "topic 'bad'"}, done
    assert scene.depth(queue) == 3
    got = [(method.exchange, method.routing_key) for method, *_ in (scene.get(source) for _ in range(4))]
    assert got == [(mine, "ok"), (gone, "old"), (internal, "in"), ("", "any")]
    ends(scene, order(scene, queue), gone=3)  # who may publish so may send so


def test_topic_permissions_count(scene):
    """Each message has a key of its own, and the user may publish with one of them."""
    queue, arrived, exchange = scene.queue("dead", kind="quorum"), scene.queue("arrived", kind="classic"), scene.exchange("topics", "topic")
    scene.bind(arrived, exchange, "#")
    source, internal = scene.exchange("source"), scene.exchange("internal", internal=True)
    scene.bind(queue, source)
    for number, key in enumerate(("ok", "bad", "ok", "bad", "ok")):
        scene.publish(source, key, b'{"number": %d}' % number)
    scene.has(queue, 5)
    with user(scene.via, "clerk", topics=(exchange, "^ok$")):
        for to, code, words in (
            ({"to_exchange": exchange, "to_routing_key": "bad"}, 403, "access to topic 'bad' in exchange"),
            ({"to_exchange": internal}, 403, "internal exchange"),
            ({"to_exchange": scene.name("gone")}, 404, "no exchange"),
        ):
            assert words in order(scene, queue, status=code, user="clerk", **to)["detail"]
        assert (scene.depth(queue), scene.depth(arrived)) == (5, 0)
        done = ends(scene, order(scene, queue, user="clerk", to_exchange=exchange), gone=3)
        ((why, number),) = done["stay"].items()
        assert number == 2 and "access to topic 'bad' in exchange" in why, done
        assert numbers(scene, queue) == [1, 3] and scene.depth(arrived) == 3, "no question has become a message"
        ends(scene, order(scene, queue, user="clerk", to_exchange=exchange, to_routing_key="ok"), gone=2)
    assert [json.loads(scene.get(arrived).body)["number"] for _ in range(5)] == [0, 2, 4, 1, 3]


def test_who_may_not_moves_nothing(scene):
    via, queue, stream = scene.via, scene.queue("dead", kind="classic"), scene.queue("stream", kind="stream")
    die(scene, (queue, stream), 2)
    for login, status, words in (
        (("stranger",), 403, "access to vhost"),
        (("all-rights", "wrong"), 401, "Login was refused"),
        ((None, None, (), "POST", False), 403, "what changes something needs the header"),
    ):
        login = login if len(login) > 2 else (*login, *[None] * (2 - len(login)), (), "POST")
        said, problem, _ = ask(via, of_queue(via, queue, "/redrives"), *login)
        assert said == status and words in problem["detail"], problem
    order(scene, queue, status=403, to_queue="dlx-proxy.intake")
    for what, parameters in (("redrives", {"to_queue": queue}), ("purges", {})):
        assert order(scene, stream, what, status=409, **parameters)["detail"].startswith("a stream keeps its messages")
    assert len(look(scene, queue)["dead-letters"]) == 2
    begun = order(scene, queue)
    for user, status in (("stranger", 404), ("all-rights", 200)):
        assert ask(via, of_vhost(via, f"/redrives/{begun['id']}"), user)[0] == status
    ended(scene, begun)


def test_who_pauses_all_redrives_leaves_places_for_others(own):
    mine = [own.fill(own.queue(f"mine-{number}"), [b"m"] * 20) for number in range(6)]
    for queue in mine[:5]:
        begun = order(own, queue, "purges", user="all-rights", rate=1)
        said, paused, _ = ask(own.via, of_vhost(own.via, f"/redrives/{begun['id']}/pause"), "all-rights", method="POST")
        assert (said, paused["state"]) == (200, "paused"), paused
    assert "half of them are yours" in order(own, mine[5], "purges", status=503, user="all-rights")["detail"]
    assert own.proxy.metric("dlx_proxy_limits_met_total", limit="max-redrives") == 1
    ends(own, order(own, mine[5], "purges"), gone=20)


def test_the_command_sends_back_and_says_what_stays(scene):
    queue, other = scene.queue("dead", kind="classic"), scene.queue("other")
    orders, _ = die(scene, (queue,), 6)
    code, printed, said = command(scene, "redrive", queue, "--source", orders)
    assert (code, printed, shown(scene, queue)) == (64, "", []) and "--approve" in said, said
    code, printed, said = command(scene, "redrive", queue, "--source", orders, "--dry-run")
    assert (code, printed) == (0, f"In {queue}, 3 of 6 messages would go back to the queues that they died in.\n"), said
    code, printed, said = command(scene, "redrive", queue, "--source", orders, "--approve")
    (redrive,) = shown(scene, queue)
    number = str(redrive["id"])
    assert (code, said) == (0, "") and ["id", number] in rows(printed) and ["gone", "3"] in rows(printed), printed
    assert (numbers(scene, queue), scene.depth(orders)) == ([1, 3, 5], 3)
    printed = command(scene, "list", "--columns", "id,queue,to,state,gone", "-o", "tsv", group="dead-letters redrives")[1]
    assert f"{number}\t{queue}\tsource\tcompleted\t3" in printed.splitlines(), printed
    assert ["gone", "3"] in rows(command(scene, "show", number, group="dead-letters redrives")[1])
    assert command(scene, "cancel", number, group="dead-letters redrives") == (1, "", "dlx-proxy: it has ended\n")
    assert command(scene, "redrive", scene.name("nothing"), "--approve")[0] == 1
    code, printed, _ = command(scene, "redrive", queue, "--to-queue", scene.name("nobody"), "--approve")
    assert code == 65 and ["gone", "0"] in rows(printed) and ["unroutable", "3"] in rows(printed), printed
    letter = look(scene, queue)["dead-letters"][1]
    assert command(scene, "redrive", queue, "--id", letter["id"], "--to-queue", other, "--approve")[0] == 0
    assert (scene.depth(other), numbers(scene, queue)) == (1, [1, 5])


def test_the_command_is_interrupted_paused_and_cancelled(scene):
    """Who follows learns of it; who stops following does not end it."""
    queue, other = scene.queue("dead", kind="classic"), scene.queue("other")
    die(scene, (queue,), 8)
    words = ["redrive", queue, "--to-queue", other, "--rate", "1", "--approve"]
    with subprocess.Popen(**typed(scene, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        until(lambda: scene.depth(other) >= 1, "the first one went")
        follower.send_signal(signal.SIGINT)
        printed, said = follower.communicate(timeout=DEADLINE)
    (redrive,) = shown(scene, queue)
    number = str(redrive["id"])
    assert (follower.returncode, printed, redrive["state"]) == (130, b"", "running"), said
    assert f"dlx-proxy dead-letters redrives cancel {number}" in said.decode()
    for what, state in (("pause", "paused"), ("resume", "running"), ("cancel", None)):
        code, printed, said = command(scene, what, number, group="dead-letters redrives")
        assert code == 0 and (state is None or ["state", state] in rows(printed)), printed + said
    until(lambda: shown(scene, queue)[0]["state"] == "cancelled", "the end")
    with subprocess.Popen(**typed(scene, *words), stdout=subprocess.PIPE) as follower:
        until(lambda: shown(scene, queue)[0]["id"] > redrive["id"], "the second one begins")
        assert command(scene, "cancel", str(shown(scene, queue)[0]["id"]), group="dead-letters redrives")[0] == 0
        printed, _ = follower.communicate(timeout=DEADLINE)
    assert follower.returncode == 3 and ["state", "cancelled"] in rows(printed.decode()), printed
    assert scene.depth(queue) + scene.depth(other) == 8


@contextlib.contextmanager
def answer_held(admin):
    """An address at which one request reaches the admin port, and the event that lets its answer go back."""
    let_go = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(admin) as proxy:
        def carry():
            asking, _ = server.accept()
            with asking, contextlib.suppress(OSError):
                proxy.sendall(asking.recv(65536))
                let_go.wait(DEADLINE)
                while piece := proxy.recv(65536):
                    asking.sendall(piece)

        threading.Thread(target=carry, daemon=True).start()
        yield "%s:%d" % server.getsockname(), let_go
        let_go.set()


@pytest.mark.parametrize("then", ["answered", "interrupted-again"])
def test_the_command_is_interrupted_before_the_answer(scene, then):
    """The messages go already: who interrupts learns under which number, or that nobody knows; who does it again need not wait for that."""
    queue, other = scene.fill(scene.queue("dead", kind="classic"), [b"m"] * 4), scene.queue("other")
    with answer_held(scene.via.proxy.admin) as (admin, let_go):
        words = typed(scene, "redrive", queue, "--to-queue", other, "--rate", "1", "--approve")
        words["args"][words["args"].index("--url") + 1] = "http://" + admin
        with subprocess.Popen(**words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
            until(lambda: scene.depth(other) >= 1, "the first one went")
            asking.send_signal(signal.SIGINT)
            if then == "answered":
                let_go.set()
            else:
                until(lambda: asking.send_signal(signal.SIGINT) or asking.poll() is not None, "its end")
            printed, said = asking.communicate(timeout=DEADLINE)
    (redrive,) = shown(scene, queue)
    assert (asking.returncode, printed) == (130, b""), said
    assert (f"dlx-proxy dead-letters redrives cancel {redrive['id']}" if then == "answered" else "it may have begun") in said.decode()
    command(scene, "cancel", str(redrive["id"]), group="dead-letters redrives")


@pytest.mark.parametrize("typing, code", [("y", 1), ("name", 0)])
def test_the_command_removes_what_somebody_confirms(scene, typing, code):
    queue = scene.queue("dead", kind="classic")
    die(scene, (queue,), 2)
    printed = command(scene, "purge", queue, "--reason", "expired", "--dry-run")[1]
    assert printed == f"In {queue}, 1 of 2 messages would be removed.\n"
    keyboard, terminal = pty.openpty()
    try:
        with subprocess.Popen(**typed(scene, "purge", queue, "--reason", "expired"), stdin=terminal, stderr=terminal, stdout=subprocess.PIPE) as purge:
            asked = b""
            while not asked.endswith(b"say yes: "):
                asked += os.read(keyboard, 1000)
            assert b" 1 of 2 messages would be removed for good." in asked, asked
            os.write(keyboard, (queue if typing == "name" else typing).encode() + b"\n")
            purge.communicate(timeout=DEADLINE)
    finally:
        for end in (keyboard, terminal):
            os.close(end)
    assert (purge.returncode, numbers(scene, queue)) == (code, [0] if code == 0 else [0, 1])


def test_in_an_alarm_it_waits_and_then_goes_on(scene):
    queue, other = scene.queue("dead", kind="quorum"), scene.queue("other", kind="quorum")
    scene.fill(queue, [b"%d" % number for number in range(40)])
    begun = order(scene, queue, to_queue=other, rate=20)
    until(lambda: scene.depth(other) >= 3, "some have gone")
    with scene.via.broker.under_memory_alarm():
        now = lambda: answer(scene.via, of_vhost(scene.via, f"/redrives/{begun['id']}"))
        until(lambda: (now()["state"], now()["cause"]) == ("waiting", "blocked"), now)
        assert ["cause", "blocked"] in rows(command(scene, "show", str(begun["id"]), group="dead-letters redrives")[1])
    ends(scene, begun, cause=None, seen=40, gone=40, stay={})
    assert ({body for *_, body in scene.all_of(other, 40)}, scene.depth(queue)) == ({b"%d" % number for number in range(40)}, 0)
