"""Looks at dead letters, by the API and by the command line: who may, what is shown, and that the queue does not notice."""

import json

import pytest

from console import KINDS, ask, command, die, kind, look, of_queue, order, ends, numbers
from lab import until
from raw import Raw, publish
from scene import user

pytestmark = pytest.mark.every_broker

ODD = b"\xff\xfe\x1b[31m<script>alert(1)</script>"
COUNTED = ("x-delivery-count", "x-acquired-count")
"""Headers in which quorum queues count deliveries."""


def consumed(scene, queue, kind, count):
    """What a consumer gets: exchange, key, properties, body. Headers that count deliveries stand apart."""
    channel, got = scene.via.direct.channel(), []
    channel.basic_qos(prefetch_count=count)
    arguments = {"x-stream-offset": "first"} if kind == "stream" else {}
    channel.basic_consume(queue, lambda *delivery: got.append(delivery[1:]), arguments=arguments)
    until(lambda: len(got) == count, lambda: f"{len(got)} of {count} in {queue}", pause=lambda: scene.via.direct.process_data_events(time_limit=0.05))
    channel.close()
    counts = [{name: properties.headers.pop(name) for name in COUNTED if name in (properties.headers or {})} for _, properties, _ in got]
    return [(method.exchange, method.routing_key, vars(properties), body) for method, properties, body in got], counts


@pytest.mark.parametrize("name", KINDS)
def test_a_look_changes_nothing(scene, name):
    """Of two queues with the same messages one is looked at three times; then a consumer cannot tell which."""
    broker = scene.via.broker
    looked, left = (scene.queue(label, **kind(scene, name)) for label in ("looked", "left"))
    orders, slow = die(scene, (looked, left), 6)
    listed = look(scene, looked)
    groups = look(scene, looked, "/groups")
    last = listed["dead-letters"][-1]
    shown = look(scene, looked, f"/{last['id']}")

    assert listed["queue-type"] == KINDS[name]["kind"]
    assert (listed["scanned"], listed["matched"], listed["stopped"], len(listed["dead-letters"])) == (6, 6, "end", 6)
    assert [letter["position"] for letter in listed["dead-letters"]] == [1, 2, 3, 4, 5, 6]
    deaths = [(orders, "rejected"), (slow, "expired")]
    if name == "stream" and not broker.is_4x:
        deaths = [(None, None)] * 2  # such a stream drops headers that are arrays
    found = [(group["source"], group["reason"], group["error"], group["messages"]) for group in groups["groups"]]
    assert sorted(map(str, found)) == sorted(str((*death, f"error {number}", 3)) for number, death in enumerate(deaths))
    assert shown["id"] == last["id"] and shown["body"]["text"].startswith("{"), shown

    counts = name in ("quorum", "unlimited", "limited") and not broker.is_from(4, 3)
    for answer in (listed, groups, shown):
        assert any("counted as a failed delivery" in note for note in answer["notes"]) == counts, answer
    (found, counted), (expected, untouched) = (consumed(scene, queue, name, 6) for queue in (looked, left))
    assert found == expected
    assert [letter["preview"] for letter in listed["dead-letters"]] == [body.decode() for *_, body in expected]
    assert [one.get("x-delivery-count", 0) for one in untouched] == [0] * 6
    assert [one.get("x-delivery-count", 0) for one in counted] == ([3] * 6 if counts else [0] * 6)


@pytest.mark.parametrize("priorities", (1, 3))
def test_a_look_at_some_of_what_came_back_keeps_their_order(scene, priorities):
    """A quorum queue would put what it took behind the rest of what had come back. Where that cannot be helped, the answer says so. What has come
    back comes before the others, even before those with a higher priority; and the next look misses nothing of it."""
    looked, left = (scene.queue(label, kind="quorum") for label in ("looked", "left"))

    def add(numbers):
        for queue in (looked, left):
            for number in numbers:
                scene.publish("", queue, b"%d" % number, priority=number % priorities)
            scene.has(queue, numbers[-1] + 1)

    add(range(40))
    for queue in (looked, left):
        for _ in range(3):
            answer = look(scene, queue, "/groups")
            assert (answer["ready"], answer["scanned"]) == (40, 40)
    add(range(40, 45))
    answer = look(scene, looked, limit=20)
    assert answer["stopped"] == "enough"
    found, expected = ([body for *_, body in consumed(scene, queue, "quorum", 45)[0]] for queue in (looked, left))
    assert {int(body) for body in expected[:40]} == set(range(40))
    assert [letter["preview"].encode() for letter in answer["dead-letters"]] == expected[:20]
    says_so = any("may have changed" in note for note in answer["notes"])
    assert (found == expected, says_so) == ((True, False) if scene.via.broker.is_from(4, 3) else (False, True)), answer["notes"]


def test_filters_and_pages(scene):
    queue = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (queue,), 6)
    ids = [letter["id"] for letter in look(scene, queue)["dead-letters"]]
    for parameters, expected in (
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"source": orders}, [0, 2, 4]),
        ({"reason": "rejected"}, [0, 2, 4]),
        ({"source": slow, "header": "tenant=2"}, [5]),
        ({"header": ["tenant=0", "x-exception-message=error 1\nat line 7"]}, [3]),
        ({"routing_key": orders}, [0, 2, 4]),
        ({"body": '"number": 4'}, [4]),
        ({"older_than": "1h"}, []),
        ({"since": "1h"}, [0, 1, 2, 3, 4, 5]),
        ({"since": "2100-01-01T00:00Z"}, []),
        ({"id": ids[1]}, [1]),
    ):
        assert numbers(scene, queue, **parameters) == expected, parameters
    for (limit, offset), expected in (((2, 0), ([1, 2], 2, "enough")), ((2, 4), ([5, 6], 6, "end")), ((2, 9), ([], 6, "end"))):
        answer = look(scene, queue, limit=limit, offset=offset)
        assert ([letter["position"] for letter in answer["dead-letters"]], answer["scanned"], answer["stopped"]) == expected, answer


def test_who_may_not(scene):
    via = scene.via
    queue = scene.fill(scene.queue("dead"), [b"m"] * 2)
    exclusive = scene.queue("exclusive", exclusive=True, durable=False, channel=via.direct.channel())

    def refused(path, code, words="", **login):
        status, problem, headers = ask(via, path, **login)
        assert (status, problem["status"], headers["Content-Type"]) == (code, code, "application/problem+json"), problem
        assert headers["Cache-Control"] == "no-store" and "secret" not in json.dumps(problem) and words in problem["detail"], problem

    with user(via, "blind", read="^$"):
        for rest in ("/dead-letters", "/dead-letters/groups"):
            refused(of_queue(via, queue, rest), 403, user="blind")
    refused(of_queue(via, queue), 403, user="stranger")
    refused(of_queue(via, scene.name("nothing")), 404)
    refused(of_queue(via, queue, vhost="nothing"), 404)
    refused(of_queue(via, queue, "/dead-letters/00000000000000aa"), 404)
    refused(of_queue(via, exclusive), 409)
    refused(of_queue(via, queue, "/dead-letters?limit=no"), 400)
    refused(of_queue(via, queue), 401, "ACCESS_REFUSED - Login was refused", user="all-rights", password="wrong")
    with via.direct.channel() as alone:
        alone.basic_qos(prefetch_count=1)
        alone.basic_consume(queue, lambda *_: None, exclusive=True)
        refused(of_queue(via, queue), 409, "in exclusive use")
    assert ask(via, of_queue(via, queue), user="all-rights")[0] == 200
    assert "secret" not in via.proxy.text()


def test_a_hostile_message_is_shown_and_stays(scene):
    """Names that are not UTF-8 and script in every field: in JSON as text, on a terminal as escapes. It dies as any other, and is as it was."""
    queue, dlx, entrance = scene.queue("dead", kind="classic"), scene.exchange("dlx"), scene.exchange("in")
    scene.bind(queue, dlx)
    source = scene.queue("source", dlx=dlx)
    scene.bind(source, entrance)
    fields = [(ODD, b"S", ODD), ("x-exception-message", b"S", ODD), ("x-death", b"A", [(b"S", ODD)]), ("deep", b"F", [(ODD, b"x", ODD)])]
    with Raw(scene.via.broker, scene.via.vhost) as raw:
        raw.open_channel()
        raw.send(*publish(1, entrance, ODD, ODD, fields))
        scene.reject(source)
        scene.has(queue, 1)
    (letter,) = look(scene, queue)["dead-letters"]
    assert "<script>" in letter["routing-key"]
    shown = look(scene, queue, f"/{letter['id']}")
    types = {header["name"]: header["type"] for header in shown["headers"]}
    assert types.items() >= {"deep": "table", "x-death": "array", "x-exception-message": "longstr"}.items() and list(types.values()).count("longstr") >= 2, types
    assert (shown["body"]["encoding"], shown["body"]["text"]) == ("hex", ODD.hex())
    for words in (["list", queue], ["groups", queue], ["show", queue, letter["id"]]):
        for output in ("table", "json"):
            code, printed, said = command(scene, *words, "--output", output)
            assert code == 0 and "\x1b" not in printed and "script" in printed, printed + said
    message = scene.get(queue)
    assert (message.method.routing_key, message.body) == (ODD, ODD)


def test_the_command_line(scene):
    queue = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (queue,), 4)
    code, printed, said = command(scene, "groups", queue, "--columns", "messages,source,reason,error", "-o", "tsv")
    assert (code, said) == (0, "")
    assert sorted(printed.splitlines()) == [f"2\t{orders}\trejected\terror 0", f"2\t{slow}\texpired\terror 1"]
    code, printed, said = command(scene, "list", queue, "--limit", "1", "--output", "json")
    answer = json.loads(printed)
    assert (code, said, len(answer["dead-letters"])) == (0, "", 1)
    code, printed, _ = command(scene, "show", queue, answer["dead-letters"][0]["id"])
    assert code == 0 and ["encoding", "json"] in [line.split() for line in printed.splitlines()] and "tenant" in printed, printed
    assert command(scene, "list", queue, "--limit", "1")[2] == "dlx-proxy: The queue has 4 messages: --limit and --offset show more.\n"
    for words, expected in (
        ([scene.name("nothing")], "NOT_FOUND - no queue"),
        ([queue, "--older-than", "old"], "older-than=old: write a time with its unit"),
        ([queue, "--columns", "id,it"], "there is no column `it`"),
        ([queue, "--username", "nobody"], "ACCESS_REFUSED - Login was refused"),
    ):
        code, printed, said = command(scene, "list", *words)
        assert (code, printed) == (1, "") and said.startswith(f"dlx-proxy: {expected}"), said


def test_what_others_hold_is_missed_by_a_word_and_an_exit_code(own):
    """A consumer, one that is alone, and somebody who looks at the same time."""
    own.restart(browse_timeout="1s", max_browses=2)
    queue = own.fill(own.queue("dead", kind="quorum"), [b"m"] * 20)
    with own.via.direct.channel() as other:
        other.basic_qos(prefetch_count=5)
        other.basic_consume(queue, lambda *_: None)
        own.has(queue, 15)
        answer = look(own, queue)
        assert (answer["stopped"], answer["scanned"]) == ("others", 15), answer
        held = "dlx-proxy: A consumer takes messages from this queue. Those that it holds are not shown."
        for what in ("export", "list", "groups"):
            consumers = lambda: own.channel.queue_declare(queue, passive=True).method.consumer_count
            until(lambda: consumers() == 1, consumers)  # the broker removes the consumers of whoever looked before in its own time
            code, _, said = command(own, what, queue)
            assert code == 3 and held in said.splitlines(), (what, code, said)
    alone = own.queue("alone", single_active=True)
    with own.via.direct.channel() as active:
        active.basic_qos(prefetch_count=1)
        active.basic_consume(alone, lambda *_: None)
        for _ in range(3):
            own.publish("", alone)
        own.has(alone, 2)
        answer = look(own, alone)
    assert (answer["scanned"], answer["stopped"], answer["consumers"]) == (0, "time", 1), answer
    assert answer["notes"][0].startswith("None of 2 messages arrived in time."), answer
    assert own.proxy.metric("dlx_proxy_limits_met_total", limit="browse-timeout") == 1


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_that_goes_with_its_last_consumer_stays(scene, durable):
    """Also where whoever looks may not ask the broker whether it would be deleted."""
    if not durable and scene.via.broker.is_from(4, 3):
        pytest.skip("from 4.3 on there are no such queues")
    queue, other = scene.queue("dead", durable=durable, auto_delete=True), scene.queue("other", kind="classic")
    die(scene, (queue,), 20)
    with user(scene.via, "reader", "^$", "^$"):
        status, answer, _ = ask(scene.via, of_queue(scene.via, queue), "reader")
        assert (status, len(answer["dead-letters"])) == (200, 20), answer
    code, lines, said = command(scene, "export", queue)
    assert (code, len(lines.splitlines()), said) == (0, 20, "")
    ends(scene, order(scene, queue, to_queue=other, limit=3), gone=3)
    ends(scene, order(scene, queue, "purges", reason="expired"), gone=9)
    assert numbers(scene, queue) == list(range(4, 20, 2))
    ends(scene, order(scene, queue, to_queue=other), gone=8, stay={})
    assert (scene.depth(queue), scene.depth(other)) == (0, 11)
