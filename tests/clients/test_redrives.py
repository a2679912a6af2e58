"""Dead letters that are sent back, or removed, over HTTP: nothing is lost, nothing comes twice, and only who may moves anything."""

import contextlib
import copy
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pika
import pytest

from cable import pump
from lab import DEADLINE, until
from test_dead_letters import KINDS, ask, command, die, look, path, typed

pytestmark = [pytest.mark.once, pytest.mark.proxied, pytest.mark.every_broker]


def redrives(via, rest=""):
    return f"/api/v1/vhosts/{urllib.parse.quote(via.vhost, safe='')}/redrives{rest}"


def order(scene, queue, what="redrives", status=202, user=None, **parameters):
    """Begins it: the answer."""
    pairs = [(name.replace("_", "-"), value) for name, value in parameters.items()]
    place = path(scene.via, queue).removesuffix("dead-letters") + what
    said, answer, _ = ask(scene.via, place, user, parameters=pairs, method="POST")
    assert said == status, answer
    return answer


def ended(scene, begun):
    """How it ended."""
    def state():
        status, answer, _ = ask(scene.via, redrives(scene.via, f"/{begun['id']}"))
        assert status == 200, answer
        return answer

    return until(lambda: (now := state())["state"] not in ("running", "waiting", "paused") and now, lambda: f"the end of {state()}")


def numbers(scene, queue):
    """The messages in a queue, by their bodies, in its order (from 4.3 on quorum queues have priorities, too)."""
    return [json.loads(letter["preview"])["number"] for letter in look(scene, queue)["dead-letters"]]


def taken(scene, queue, count):
    """What a client of the proxy reads: exchange, key, redelivered, headers, body. And acks."""
    got, channel = [], scene.channel
    for _ in range(count):
        until(lambda: (one := channel.basic_get(queue, auto_ack=True))[0] is not None and got.append(one) is None, f"message {len(got) + 1} of {count} in {queue}")
    return got


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
def test_what_died_goes_back_to_its_queue(scene, kind):
    arguments = dict(KINDS[kind])
    if scene.via.broker.version.startswith("3."):
        arguments.pop("limit", None)
    dead = scene.queue("dead", **arguments)
    orders, slow = die(scene, (dead,), 6)
    before = numbers(scene, dead)
    done = ended(scene, order(scene, dead, source=orders))
    assert (done["state"], done["ready"], done["seen"], done["gone"], done["stay"]) == ("completed", 6, 6, 3, {}), done
    assert numbers(scene, dead) == [number for number in before if number % 2], "the others are in their places"
    went = [number for number in before if number % 2 == 0]
    for number, (method, properties, body) in zip(went, taken(scene, orders, 3)):
        assert json.loads(body) == {"number": number}
        assert (method.exchange, method.routing_key, method.redelivered) == ("", orders, False)
        assert properties.headers["tenant"] == number % 3
        assert properties.message_id == f"m{number}"


def test_where_the_broker_kills_it_again_it_has_its_own_key(scene):
    """A queue that the proxy has not taken over, with a dead-letter exchange and no key: the broker routes by the key that the message has there."""
    shop, dlx, direct = scene.exchange("shop", "direct"), scene.exchange("dlx", "direct"), scene.via.direct.channel()
    dead = scene.queue("dead", kind="classic")
    orders = scene.queue("orders", kind="classic", dlx=dlx, channel=direct)
    scene.bind(orders, shop, "new")
    scene.bind(dead, dlx, "new")
    scene.publish(shop, "new", b'{"number": 0}')
    for _ in range(2):
        direct.basic_reject(scene.get(orders, direct)[0].delivery_tag, requeue=False)
        until(lambda: scene.depth(dead) == 1, "it died")
        done = ended(scene, order(scene, dead))
        assert (done["state"], done["gone"], done["stay"]) == ("completed", 1, {}), done
    ((method, _, body),) = taken(scene, orders, 1)
    assert (method.exchange, method.routing_key, body) == (shop, "new", b'{"number": 0}')
    direct.close()


def test_back_to_a_queue_to_which_nothing_can_be_bound(scene):
    """It is another connection's alone; or it is gone, and then the message stays."""
    dlx, dead = scene.exchange("dlx"), scene.queue("dead", kind="classic")
    scene.bind(dead, dlx)
    with contextlib.closing(scene.via.connect(direct=True)) as connection:
        channel = connection.channel()
        mine = channel.queue_declare("", exclusive=True, arguments={"x-dead-letter-exchange": dlx}).method.queue

        def dies():
            got = until(lambda: (one := channel.basic_get(mine))[0] and one, "the message")
            channel.basic_reject(got[0].delivery_tag, requeue=False)
            until(lambda: scene.depth(dead) == 1, "it died")

        channel.basic_publish("", mine, b"{}")
        dies()
        done = ended(scene, order(scene, dead))
        assert (done["state"], done["gone"], done["stay"]) == ("completed", 1, {}), done
        dies()
    done = ended(scene, order(scene, dead))
    assert (done["state"], done["gone"], done["stay"]) == ("completed", 0, {"unroutable": 1}), done


def test_what_dies_again_says_that_it_was_redriven(scene):
    dead = scene.queue("dead", kind="classic")
    orders, _ = die(scene, (dead,), 1)
    for times in (1, 2):
        assert ended(scene, order(scene, dead))["gone"] == 1
        until(lambda: scene.depth(orders) == 1, "it is back")
        scene.kill(orders, "rejected")
        until(lambda: scene.depth(dead) == 1, "it died again")
        (letter,) = look(scene, dead)["dead-letters"]
        assert (letter["redriven"], letter["deaths"], letter["source-queue"]) == (times, times + 1, orders), letter


def test_a_number_a_rate_and_another_queue(scene):
    dead, other = scene.queue("dead", kind="quorum"), scene.queue("other", kind="classic")
    die(scene, (dead,), 4)
    before = numbers(scene, dead)
    done = ended(scene, order(scene, dead, to_queue=other, limit=2, rate=1000, history="new"))
    assert (done["state"], done["gone"]) == ("completed", 2), done
    for number, (_, properties, body) in zip(before, taken(scene, other, 2)):
        assert json.loads(body) == {"number": number}
        assert "x-death" not in properties.headers
    assert numbers(scene, dead) == before[2:]


def test_what_no_route_takes_stays(scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 3)
    done = ended(scene, order(scene, dead, to_queue=scene.name("nobody")))
    assert (done["state"], done["gone"], done["stay"]) == ("completed", 0, {"unroutable": 3}), done
    assert len(look(scene, dead)["dead-letters"]) == 3


def test_purge(scene):
    dead = scene.queue("dead", kind="quorum")
    die(scene, (dead,), 4)
    assert order(scene, dead, "purges", status=200, reason="expired", dry_run="true")["matched"] == 2
    done = ended(scene, order(scene, dead, "purges", reason="expired"))
    assert (done["state"], done["gone"]) == ("completed", 2), done
    assert {letter["reason"] for letter in look(scene, dead)["dead-letters"]} == {"rejected"}


def test_a_filter_and_an_id_mean_the_same_messages_for_all(scene):
    """Of a large body a list keeps the beginning, while a purge has all of it."""
    dead, begins = scene.queue("dead", kind="classic"), b"a" * (1 << 20)
    for body in (begins + b" WANTED", begins + b" 1", begins + b" 2", b"WANTED 3"):
        scene.publish("", dead, body)
    until(lambda: scene.depth(dead) == 4, "all are there")
    numbers = [look(scene, dead, rest, body="WANTED")["matched"] for rest in ("", "/groups")]
    numbers.append(order(scene, dead, "purges", 200, body="WANTED", dry_run="true")["matched"])
    _, lines, _ = command(scene, "export", "--queue", dead, "--body", "WANTED")
    numbers.append(len(lines.splitlines()))
    numbers.append(ended(scene, order(scene, dead, "purges", body="WANTED"))["gone"])
    assert numbers == [1] * 5
    ids = [letter["id"] for letter in look(scene, dead)["dead-letters"]]
    _, lines, _ = command(scene, "export", "--queue", dead)
    assert ids == [json.loads(line)["id"] for line in lines.splitlines()] and len(set(ids)) == 3
    for one in ids:
        shown = look(scene, dead, f"/{one}")
        assert shown["body"]["cut"] and len(shown["body"]["text"]) == 256 << 10
    assert ended(scene, order(scene, dead, "purges", id=ids[1]))["gone"] == 1
    assert [letter["id"] for letter in look(scene, dead)["dead-letters"]] == [ids[0], ids[2]]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_filter_finds_what_is_meant_in_a_long_queue(scene, kind):
    """More messages stay than a look passes (`look-limit`), and they stay in their order."""
    count, every, direct = 12_000, 60, scene.via.direct.channel()
    dead, other = scene.queue("dead", kind=kind), scene.queue("other", kind="classic")
    meant = [number for number in range(count) if number % every == every - 1]
    for number in range(count):
        direct.basic_publish("", dead, b"%s %d" % (b"meant" if number % every == every - 1 else b"other", number))
    until(lambda: scene.depth(dead) == count, "all are there")
    done = ended(scene, order(scene, dead, to_queue=other, body="meant"))
    assert (done["state"], done["seen"], done["gone"], done["stay"], done["cause"]) == ("completed", count, len(meant), {}, None), done
    for queue, expected in ((other, meant), (dead, sorted(set(range(count)) - set(meant)))):
        found = []
        for method, _, body in direct.consume(queue, auto_ack=True, inactivity_timeout=DEADLINE):
            assert method, f"{len(found)} of {len(expected)}"
            found.append(int(body.split()[1]))
            if len(found) == len(expected):
                break
        assert found == expected, "in their order"
        direct.cancel()
    direct.close()


def test_what_a_message_says_of_its_past_takes_the_right_to_publish_so(scene):
    """Whoever may publish into a queue can write any `x-death`, and consumers behind the proxy read exchange and key of that."""
    via, direct = scene.via, scene.via.direct.channel()
    bank, mine, internal = scene.exchange("bank", "direct"), scene.exchange("mine", "topic"), scene.exchange("internal", internal=True)
    gone, dead, source = scene.name("gone"), scene.queue("dead", kind="classic"), scene.queue("source", kind="classic")
    ways = [(bank, "approved"), (mine, "ok"), (mine, "bad"), (gone, "old"), (scene.name("none"), "old"), (internal, "in"), ("", "any")]
    for exchange, key in ways:
        death = {"queue": source, "reason": "rejected", "exchange": exchange, "routing-keys": [key], "count": 1}
        direct.basic_publish("", dead, b"forged", pika.BasicProperties(headers={"x-death": [death]}))
    until(lambda: scene.depth(dead) == len(ways), "all are there")
    via.broker.permit(via.vhost, "stranger", f"^{dead}$", f"^(amq\\.default|{mine}|{gone}|{internal})$", f"^{dead}$")
    via.broker.permit_topic(via.vhost, "stranger", mine, "^ok$")
    try:
        done = ended(scene, order(scene, dead, user="stranger"))
    finally:
        via.broker._call("rabbit_auth_backend_internal:clear_permissions", "stranger", via.vhost)
    refused = {re.sub(r".*access to (\w+ '[^']*').*", r"\1", why) for why in done["stay"]}
    assert refused == {f"exchange '{bank}'", f"exchange '{scene.name('none')}'", "topic 'bad'"}, done
    assert (done["state"], done["gone"], scene.depth(dead)) == ("completed", 4, 3), done
    got = [(method.exchange, method.routing_key) for method, _, _ in taken(scene, source, 4)]
    assert got == [(mine, "ok"), (gone, "old"), (internal, "in"), ("", "any")]
    assert ended(scene, order(scene, dead))["gone"] == 3, "who may publish so may send so"


def test_a_stream_keeps_its_messages(scene):
    dead, orders = scene.queue("dead", kind="stream"), scene.queue("other", kind="classic")
    die(scene, (dead,), 1)
    for what, parameters in (("redrives", {"to_queue": orders}), ("purges", {})):
        answer = order(scene, dead, what, status=409, **parameters)
        assert answer["detail"].startswith("a stream keeps its messages"), answer
    assert scene.depth(orders) == 0


def test_who_may_not_moves_nothing(scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 2)
    place = path(scene.via, dead).removesuffix("dead-letters") + "redrives"
    for user, password, status in (("stranger", None, 403), ("all-rights", "wrong", 401)):
        said, answer, _ = ask(scene.via, place, user, password, method="POST")
        assert said == status, answer
    said, answer, _ = ask(scene.via, place, method="POST", header=False)
    assert (said, answer["detail"][:39]) == (403, "what changes something needs the header"), answer
    assert len(look(scene, dead)["dead-letters"]) == 2
    order(scene, dead, status=403, to_queue="dlx-proxy.intake")
    begun = order(scene, dead)
    for user, status in (("stranger", 404), ("all-rights", 200)):
        assert ask(scene.via, redrives(scene.via, f"/{begun['id']}"), user)[0] == status


def test_topic_permissions_count(scene):
    """Each message has a key of its own, and the user may publish with one of them."""
    via, dead, arrived = scene.via, scene.queue("dead", kind="quorum"), scene.queue("arrived", kind="classic")
    exchange = scene.exchange("topics", "topic")
    scene.bind(arrived, exchange, "#")
    internal = scene.exchange("internal", internal=True)
    keys = ("ok", "bad", "ok", "bad", "ok")
    source = scene.exchange("source", "fanout")
    scene.bind(dead, source)
    for number, key in enumerate(keys):
        scene.publish(source, key, b'{"number": %d}' % number)
    until(lambda: scene.depth(dead) == len(keys), "all are there")
    via.broker.permit_topic(via.vhost, "all-rights", exchange, "^ok$")
    refused = "access to topic 'bad' in exchange"
    answer = order(scene, dead, status=403, user="all-rights", to_exchange=exchange, to_routing_key="bad")
    assert refused in answer["detail"], answer
    assert "internal exchange" in order(scene, dead, status=403, user="all-rights", to_exchange=internal)["detail"]
    order(scene, dead, status=404, user="all-rights", to_exchange=scene.name("gone"))
    assert (scene.depth(dead), scene.depth(arrived)) == (5, 0)
    done = ended(scene, order(scene, dead, user="all-rights", to_exchange=exchange))
    ((why, number),) = done["stay"].items()
    assert (done["state"], done["gone"], number) == ("completed", 3, 2) and refused in why, done
    assert numbers(scene, dead) == [1, 3]
    assert scene.depth(arrived) == 3, "no question has become a message"
    assert [json.loads(body)["number"] for _, _, body in taken(scene, arrived, 3)] == [0, 2, 4]
    done = ended(scene, order(scene, dead, user="all-rights", to_exchange=exchange, to_routing_key="ok"))
    assert (done["gone"], [json.loads(body)["number"] for _, _, body in taken(scene, arrived, 2)]) == (2, [1, 3]), done


def test_a_transaction_that_is_rolled_back_asks_for_rights(scene):
    """What the broker itself does (S12.5)."""
    via, queue = scene.via, scene.queue("all", kind="classic")
    topics, internal = scene.exchange("topics", "topic"), scene.exchange("internal", internal=True)
    scene.bind(queue, topics, "#")
    via.broker.permit_topic(via.vhost, "all-rights", topics, "^ok$")
    parameters = copy.copy(via.broker.parameters)
    parameters.virtual_host, parameters.credentials = via.vhost, pika.PlainCredentials("all-rights", "secret")
    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
        def asked(exchange, key):
            channel = connection.channel()
            returned = []
            channel.add_on_return_callback(lambda *back: returned.append(back))
            channel.tx_select()
            try:
                channel.basic_publish(exchange, key, b"", mandatory=True)
                channel.tx_rollback()
            except pika.exceptions.ChannelClosedByBroker as refusal:
                return refusal.reply_code, refusal.reply_text
            connection.process_data_events(time_limit=0.1)
            return len(returned), ""

        assert asked(topics, "ok") == asked("", queue) == asked("", scene.name("nobody")) == (0, "")
        for exchange, code, words in ((topics, 403, "access to topic 'bad' in exchange"), (internal, 403, "internal exchange"), (scene.name("gone"), 404, "no exchange")):
            said, text = asked(exchange, "bad")
            assert said == code and words in text, text
    assert scene.depth(queue) == 0


def known(scene, queue):
    """What the command line knows of the redrives of a queue, the newest first."""
    code, printed, said = command(scene, "list", "--output", "json", group="dead-letters redrives")
    assert (code, said) == (0, ""), said
    return [redrive for redrive in json.loads(printed)["redrives"] if redrive["queue"] == queue]


def rows(printed):
    return [line.split() for line in printed.splitlines()]


def test_the_command_sends_back(scene):
    dead = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (dead,), 4)
    code, printed, said = command(scene, "redrive", "--queue", dead, "--source", orders)
    assert (code, printed, len(known(scene, dead))) == (64, "", 0) and "--approve" in said, said
    code, printed, said = command(scene, "redrive", "--queue", dead, "--source", orders, "--dry-run")
    assert (code, printed) == (0, f"In {dead}, 2 of 4 messages would go back to the queues that they died in.\n"), said
    assert scene.depth(dead) == 4
    code, printed, said = command(scene, "redrive", "--queue", dead, "--source", orders, "--approve")
    (redrive,) = known(scene, dead)
    assert (code, said) == (0, "") and ["id", str(redrive["id"])] in rows(printed) and ["gone", "2"] in rows(printed), printed
    assert (numbers(scene, dead), scene.depth(orders)) == ([1, 3], 2)
    assert (redrive["state"], redrive["to"], redrive["gone"]) == ("completed", "source", 2), redrive
    code, printed, _ = command(scene, "list", "--columns", "id,queue,to,state,gone", "--non-interactive", group="dead-letters redrives")
    assert f"{redrive['id']}\t{dead}\tsource\tcompleted\t2" in printed.splitlines(), printed
    code, printed, _ = command(scene, "show", str(redrive["id"]), group="dead-letters redrives")
    assert code == 0 and ["gone", "2"] in rows(printed), printed
    assert command(scene, "cancel", str(redrive["id"]), group="dead-letters redrives") == (1, "", "dlx-proxy: it has ended\n")
    assert command(scene, "redrive", "--queue", scene.name("nothing"), "--approve")[0] == 1


def test_the_command_says_what_stays(scene):
    dead, other = scene.queue("dead", kind="classic"), scene.queue("other")
    orders, slow = die(scene, (dead,), 4)
    code, printed, _ = command(scene, "redrive", "--queue", dead, "--to-queue", scene.name("nobody"), "--approve")
    assert code == 65 and ["gone", "0"] in rows(printed) and ["unroutable", "4"] in rows(printed), printed
    exchange = scene.exchange("to", "direct")
    scene.bind(other, exchange, orders)
    code, printed, _ = command(scene, "redrive", "--queue", dead, "--to-exchange", exchange, "--approve", "--output", "json")
    answer = json.loads(printed)
    assert (code, answer["gone"], answer["stay"]) == (3, 2, {"unroutable": 2}), answer
    letter = look(scene, dead)["dead-letters"][1]
    code, printed, _ = command(scene, "redrive", "--queue", dead, "--id", letter["id"], "--to-queue", other, "--approve")
    assert (code, scene.depth(other), numbers(scene, dead)) == (0, 3, [1]), printed


def test_the_command_is_cancelled(scene):
    """Who follows learns of it; who stops following does not end it."""
    dead, other = scene.queue("dead", kind="classic"), scene.queue("other")
    die(scene, (dead,), 8)
    words = ["redrive", "--queue", dead, "--to-queue", other, "--rate", "1", "--approve"]
    with subprocess.Popen(**typed(scene, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        until(lambda: scene.depth(other) >= 1, "the first one went")
        follower.send_signal(signal.SIGINT)
        printed, said = follower.communicate(timeout=DEADLINE)
    (redrive,) = known(scene, dead)
    assert (follower.returncode, printed, redrive["state"]) == (130, b"", "running"), said
    assert f"dlx-proxy dead-letters redrives cancel {redrive['id']}" in said.decode()
    number = str(redrive["id"])
    code, printed, said = command(scene, "pause", number, group="dead-letters redrives")
    assert (code, said) == (0, "") and ["state", "paused"] in rows(printed), printed
    assert known(scene, dead)[0]["state"] == "paused"
    code, printed, said = command(scene, "resume", number, group="dead-letters redrives")
    assert (code, said) == (0, "") and ["state", "running"] in rows(printed), printed
    assert command(scene, "cancel", number, group="dead-letters redrives")[0] == 0
    until(lambda: known(scene, dead)[0]["state"] == "cancelled", "the end")
    with subprocess.Popen(**typed(scene, *words), stdout=subprocess.PIPE) as follower:
        until(lambda: known(scene, dead)[0]["id"] > redrive["id"], "the second one begins")
        assert command(scene, "cancel", str(known(scene, dead)[0]["id"]), group="dead-letters redrives")[0] == 0
        printed, _ = follower.communicate(timeout=DEADLINE)
    assert follower.returncode == 3 and ["state", "cancelled"] in rows(printed.decode()), printed
    assert scene.depth(dead) + scene.depth(other) == 8


LAST_WORDS = 5
"""Seconds for which who interrupts the command once waits for the answer."""


@contextlib.contextmanager
def answers_held(admin):
    """An address at which one request reaches the admin port, and the event that lets its answer go back."""
    let_go = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(admin) as proxy:
        def carry():
            asking, _ = server.accept()
            with asking:
                threading.Thread(target=pump, args=(asking, proxy), daemon=True).start()
                let_go.wait(DEADLINE)
                pump(proxy, asking)

        carrier = threading.Thread(target=carry, daemon=True)
        carrier.start()
        try:
            yield server.getsockname(), let_go
        finally:
            let_go.set()
            carrier.join(DEADLINE)


@pytest.mark.parametrize("then", ["answered", "never-answered", "interrupted-again"])
def test_the_command_is_interrupted_before_the_answer(scene, then):
    """The messages go already: who interrupts learns under which number, or that nobody knows; who does it again need not wait for that."""
    dead, other = scene.queue("dead", kind="classic"), scene.queue("other")
    die(scene, (dead,), 4)
    words = ["redrive", "--queue", dead, "--to-queue", other, "--rate", "1", "--approve"]
    with answers_held(scene.via.proxy.admin) as (admin, let_go):
        with subprocess.Popen(**typed(scene, *words, admin=admin), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
            until(lambda: scene.depth(other) >= 1, "the first one went")
            asking.send_signal(signal.SIGINT)
            interrupted = time.monotonic()
            if then == "answered":
                let_go.set()
            elif then == "interrupted-again":
                until(lambda: asking.send_signal(signal.SIGINT) or asking.poll() is not None, "its end")
                assert time.monotonic() - interrupted < LAST_WORDS
            printed, said = asking.communicate(timeout=DEADLINE)
    (redrive,) = known(scene, dead)
    assert (asking.returncode, printed) == (130, b""), said
    told = f"dlx-proxy dead-letters redrives cancel {redrive['id']}" if then == "answered" else "it may have begun"
    assert told in said.decode()


@pytest.mark.parametrize("answer, code", [("y", 1), ("name", 0)])
def test_the_command_removes_what_somebody_confirms(scene, answer, code):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 2)
    printed = command(scene, "purge", "--queue", dead, "--reason", "expired", "--dry-run")[1]
    assert printed == f"In {dead}, 1 of 2 messages would be removed.\n"
    keyboard, terminal = pty.openpty()
    try:
        with subprocess.Popen(**typed(scene, "purge", "--queue", dead, "--reason", "expired"), stdin=terminal, stderr=terminal, stdout=subprocess.PIPE) as purge:
            asked = b""
            while not asked.endswith(b"say yes: "):
                asked += os.read(keyboard, 1000)
            assert b" 1 of 2 messages would be removed for good." in asked, asked
            os.write(keyboard, (dead if answer == "name" else answer).encode() + b"\n")
            purge.communicate(timeout=DEADLINE)
    finally:
        for end in (keyboard, terminal):
            os.close(end)
    assert (purge.returncode, numbers(scene, dead)) == (code, [0] if code == 0 else [0, 1])
