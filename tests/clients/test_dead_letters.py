"""Looks at dead letters, by the API and by the command line: who may, what is shown, and that the queue does not notice."""

import base64
import json
import os
import subprocess
import urllib.parse
import urllib.request
from types import SimpleNamespace

import pytest

from lab import BINARY, DEADLINE, until
from own import own  # noqa: F401
from raw import Raw, publish

pytestmark = [pytest.mark.once, pytest.mark.proxied]

ODD = b"\xff\xfe\x1b[31m<script>alert(1)</script>"
COUNTED = ("x-delivery-count", "x-acquired-count")
"""Headers in which quorum queues count deliveries."""
KINDS = {
    "classic": {"kind": "classic"},
    "priority": {"kind": "classic", "max_priority": 5},
    "quorum": {"kind": "quorum"},
    "unlimited": {"kind": "quorum", "limit": -1},
    "limited": {"kind": "quorum", "limit": 5},
    "stream": {"kind": "stream"},
}


def path(via, queue, rest="", vhost=None):
    name = lambda text: urllib.parse.quote(text, safe="")
    return f"/api/v1/vhosts/{name(vhost or via.vhost)}/queues/{name(queue)}/dead-letters{rest}"


def ask(via, path, user=None, password=None, parameters=(), method="GET", header=True, file=None):
    """Status, JSON and headers of the answer."""
    login = via.broker.parameters.credentials
    credentials = f"{user or login.username}:{password or ('secret' if user else login.password)}"
    query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
    request = urllib.request.Request("http://%s:%d" % via.proxy.admin + path + query, file, method=method)
    if method != "GET" and header:
        request.add_header("X-Dlx-Proxy-Request", "1")
    request.add_header("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal), refusal.headers


def look(scene, queue, rest="", **parameters):
    """The answer, which has to be one."""
    pairs = [(name.replace("_", "-"), value) for name, values in parameters.items() for value in (values if isinstance(values, list) else [values])]
    status, answer, _ = ask(scene.via, path(scene.via, queue, rest), parameters=pairs)
    assert status == 200, answer
    return answer


def typed(scene, *words, group="dead-letters", admin=None):
    """A command line and its environment, for `subprocess`. It asks at another address than the proxy's if one is given."""
    login = scene.via.broker.parameters.credentials
    environment = os.environ | {"DLX_PROXY_USERNAME": login.username, "DLX_PROXY_PASSWORD": login.password}
    admin = "%s:%d" % (admin or scene.via.proxy.admin)
    return {"args": [BINARY, *group.split(), *words, "--admin", admin, "--vhost", scene.via.vhost], "env": environment}


def command(scene, *words, **group):
    """The command line: exit code, what it prints, what it says beside."""
    done = subprocess.run(**typed(scene, *words, **group), stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def die(scene, queues, count):
    """So many messages die: every second one is rejected, the others expire. Their dead letters go to each of these queues, in one order."""
    dlx, seen = scene.exchange("dlx"), scene.queue("seen", kind="classic")
    for queue in (seen, *queues):
        scene.bind(queue, dlx)
    orders, slow = scene.queue("orders", dlx=dlx), scene.queue("slow", dlx=dlx, ttl=1)
    for number in range(count):
        source = slow if number % 2 else orders
        headers = {"tenant": number % 3, "x-exception-message": f"error {number % 2}\nat line 7"}
        scene.publish("", source, b'{"number": %d}' % number, priority=number % 4, headers=headers, message_id=f"m{number}")
        scene.kill(source, "expired" if number % 2 else "rejected")
        until(lambda: scene.depth(seen) == number + 1, f"message {number}")
    for queue in queues:  # a stream says so up to 5 s late
        until(lambda: scene.depth(queue) == count, f"all messages in {queue}")
    return orders, slow


def consumed(scene, queue, kind, count):
    """What a consumer gets: exchange, key, properties, body. Headers that count deliveries stand apart."""
    channel, got = scene.via.direct.channel(), []
    channel.basic_qos(prefetch_count=count)
    arguments = {"x-stream-offset": "first"} if kind == "stream" else {}
    channel.basic_consume(queue, lambda *delivery: got.append(delivery[1:]), arguments=arguments)
    until(lambda: len(got) == count, lambda: f"{len(got)} of {count} in {queue}", pause=lambda: scene.via.direct.process_data_events(time_limit=0.05))
    channel.close()
    found, counts = [], []
    for method, properties, body in got:
        counts.append({name: properties.headers.pop(name) for name in COUNTED if name in properties.headers})
        found.append((method.exchange, method.routing_key, vars(properties), body))
    return found, counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_look_changes_nothing(scene, kind):
    """Of two queues with the same messages one is looked at three times; then a consumer cannot tell which."""
    broker, arguments = scene.via.broker, dict(KINDS[kind])
    if kind == "unlimited" and not broker.is_4x:
        del arguments["limit"]  # it is the default there, and there is no other word for it
    looked, left = (scene.queue(label, **arguments) for label in ("looked", "left"))
    orders, _ = die(scene, (looked, left), 6)
    listed = look(scene, looked)
    groups = look(scene, looked, "/groups")
    last = listed["dead-letters"][-1]
    shown = look(scene, looked, f"/{last['id']}")

    assert listed["queue-type"] == arguments["kind"]
    assert (listed["looked-at"], listed["matched"], listed["stopped"], len(listed["dead-letters"])) == (6, 6, "end", 6)
    assert [letter["position"] for letter in listed["dead-letters"]] == [1, 2, 3, 4, 5, 6]
    assert sum(group["messages"] for group in groups["groups"]) == 6
    deaths = [(orders, "rejected"), (scene.name("slow"), "expired")]
    if kind == "stream" and not broker.is_4x:
        deaths = [(None, None)] * 2  # such a stream drops headers that are arrays
    assert {(group["source"], group["reason"], group["error"]) for group in groups["groups"]} == {
        (*death, f"error {number}") for number, death in enumerate(deaths)}
    assert shown["id"] == last["id"] and shown["body"]["text"].startswith("{"), shown

    counts = kind in ("quorum", "unlimited", "limited") and not broker.is_from(4, 3)
    for answer in (listed, groups, shown):
        assert any("counts as a failed delivery" in note for note in answer["notes"]) == counts, answer
    (found, counted), (expected, untouched) = (consumed(scene, queue, kind, 6) for queue in (looked, left))
    assert found == expected
    bodies = [body.decode() for *_, body in expected]
    assert [letter["preview"] for letter in listed["dead-letters"]] == bodies
    assert [one.get("x-delivery-count", 0) for one in untouched] == [0] * 6
    assert [one.get("x-delivery-count", 0) for one in counted] == ([3] * 6 if counts else [0] * 6)


@pytest.mark.parametrize("kind", ("classic", "quorum"))
def test_a_look_right_after_another_misses_nothing(scene, kind):
    """The broker puts messages back a little after it has said so."""
    queue = scene.queue("dead", kind=kind)
    for _ in range(500):
        scene.publish("", queue)
    until(lambda: scene.depth(queue) == 500, "all messages")
    for _ in range(6):
        answer = look(scene, queue, "/groups")
        assert (answer["ready"], answer["looked-at"]) == (500, 500)


@pytest.mark.parametrize("priorities", (1, 3))
def test_a_look_at_some_of_what_came_back_keeps_their_order(scene, priorities):
    """A quorum queue would put what it took behind the rest of what had come back. Where that cannot be helped, the answer says so.

    What has come back comes before the others, even before those with a higher priority."""
    looked, left = (scene.queue(label, kind="quorum") for label in ("looked", "left"))

    def add(numbers):
        for queue in (looked, left):
            for number in numbers:
                scene.publish("", queue, b"%d" % number, priority=number % priorities)
            until(lambda: scene.depth(queue) == numbers[-1] + 1, "all messages")

    add(range(40))
    for queue in (looked, left):
        look(scene, queue, "/groups")
    add(range(40, 45))
    answer = look(scene, looked, limit=20)
    assert answer["stopped"] == "enough"

    found, expected = ([body for *_, body in consumed(scene, queue, "quorum", 45)[0]] for queue in (looked, left))
    assert {int(body) for body in expected[:40]} == set(range(40))
    assert [letter["preview"].encode() for letter in answer["dead-letters"]] == expected[:20]
    says_so = any("may stand behind other messages" in note for note in answer["notes"])
    assert (found == expected, says_so) == ((True, False) if scene.via.broker.is_from(4, 3) else (False, True)), answer["notes"]


def test_filters(scene):
    queue = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (queue,), 6)

    def bodies(**parameters):
        return [json.loads(letter["preview"])["number"] for letter in look(scene, queue, **parameters)["dead-letters"]]

    assert bodies() == [0, 1, 2, 3, 4, 5]
    assert bodies(source=orders) == bodies(reason="rejected") == [0, 2, 4]
    assert bodies(source=slow, header="tenant=2") == [5]
    assert bodies(header=["tenant=0", "x-exception-message=error 1\nat line 7"]) == [3]
    assert bodies(routing_key=orders) == [0, 2, 4]
    assert bodies(body='"number": 4') == [4]
    assert bodies(older_than="1h") == []
    assert len(look(scene, queue, "/groups", reason="expired")["groups"]) == 1
    ids = [letter["id"] for letter in look(scene, queue)["dead-letters"]]
    assert len(set(ids)) == 6 and bodies(id=ids[1]) == [1]


def test_pages(scene):
    queue = scene.queue("dead", kind="classic")
    die(scene, (queue,), 5)

    def page(**parameters):
        answer = look(scene, queue, **parameters)
        return [letter["position"] for letter in answer["dead-letters"]], answer["looked-at"], answer["stopped"], answer["notes"]

    assert page(limit=2) == ([1, 2], 2, "enough", ["the first 2 of 5 messages were looked at"])
    assert page(limit=2, offset=2) == ([3, 4], 4, "enough", ["the first 4 of 5 messages were looked at"])
    assert page(limit=2, offset=4) == ([5], 5, "end", [])
    assert page(limit=2, offset=9) == ([], 5, "end", [])
    numbers, looked_at, stopped, _ = page(limit=1, reason="expired")
    assert numbers == [2] and stopped in ("enough", "end") and looked_at >= 2  # the others may have come before it was enough


def test_who_may_not(scene):
    via = scene.via
    queue = scene.queue("dead")
    exclusive = scene.queue("exclusive", exclusive=True, durable=False, channel=via.direct.channel())
    for _ in range(2):
        scene.publish("", queue)
    via.broker.make((), [("blind", "secret")], [("blind", via.vhost, ".*", ".*", "^$")])

    def status(path, **login):
        code, problem, headers = ask(via, path, **login)
        assert (problem["status"], headers["Content-Type"]) == (code, "application/problem+json"), problem
        assert headers["Cache-Control"] == "no-store"
        assert "secret" not in json.dumps(problem)
        return code, problem["detail"]

    try:
        assert status(path(via, queue), user="blind")[0] == 403
        assert status(path(via, queue, "/groups"), user="blind")[0] == 403
        assert status(path(via, queue), user="stranger")[0] == 403
        assert status(path(via, scene.name("nothing")))[0] == 404
        assert status(path(via, queue, vhost="nothing"))[0] == 404
        assert status(path(via, queue, "/00000000000000aa"))[0] == 404
        assert status(path(via, exclusive))[0] == 409
        assert status(path(via, queue, "?limit=no"))[0] == 400
        code, detail = status(path(via, queue), user="all-rights", password="wrong")
        assert code == 401 and detail.startswith("ACCESS_REFUSED - Login was refused"), detail
        with via.direct.channel() as alone:
            alone.basic_qos(prefetch_count=1)
            alone.basic_consume(queue, lambda *_: None, exclusive=True)
            code, detail = status(path(via, queue))
            assert code == 409 and detail.endswith("in exclusive use"), detail
        assert ask(via, path(via, queue), user="all-rights")[0] == 200
    finally:
        via.broker.unmake((), ["blind"])
    assert "secret" not in via.proxy.text()


def test_a_hostile_message_is_shown_and_stays(scene):
    """Names that are not UTF-8 and script in every field: in JSON as text, on a terminal as escapes."""
    queue, dlx = scene.queue("dead", kind="classic"), scene.exchange("dlx")
    scene.bind(queue, dlx)
    fields = [(ODD, b"S", ODD), ("x-exception-message", b"S", ODD), ("x-death", b"A", [(b"S", ODD)]), ("deep", b"F", [(ODD, b"x", ODD)])]
    with Raw(scene.via, direct=True) as raw:
        raw.open_channel()
        raw.send(*publish(1, dlx, ODD, ODD, fields))
        until(lambda: scene.depth(queue) == 1, "the message")
    (letter,) = look(scene, queue)["dead-letters"]
    assert "<script>" in letter["routing-key"]
    assert look(scene, queue, "/groups")["groups"][0]["messages"] == 1
    shown = look(scene, queue, f"/{letter['id']}")
    assert sorted(header["type"] for header in shown["headers"]) == ["array", "longstr", "longstr", "table"]
    assert (shown["body"]["encoding"], shown["body"]["text"]) == ("hex", ODD.hex())
    for words in (["list"], ["groups"], ["show", letter["id"]]):
        for output in ("table", "json"):
            code, printed, said = command(scene, *words, "--queue", queue, "--output", output)
            assert code == 0, said
            assert "\x1b" not in printed and "script" in printed, printed
    (method, _, body) = scene.get(queue)
    assert (method.routing_key, body) == (ODD, ODD)


def test_the_command_line(scene):
    queue = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (queue,), 4)
    code, printed, said = command(scene, "groups", "--queue", queue, "--columns", "messages,source,reason,error", "--non-interactive")
    assert (code, said) == (0, "")
    assert sorted(printed.splitlines()) == [f"2\t{orders}\trejected\terror 0", f"2\t{slow}\texpired\terror 1"]
    code, printed, _ = command(scene, "list", "--queue", queue, "--reason", "rejected")
    heading, *rows = printed.splitlines()
    assert (code, heading.split()) == (0, "ID DIED-AT SOURCE-QUEUE REASON DEATHS ROUTING-KEY SIZE ERROR".split())
    assert [row.split()[2] for row in rows] == [orders, orders]
    code, printed, said = command(scene, "list", "--queue", queue, "--limit", "1", "--output", "json")
    answer = json.loads(printed)
    assert (code, said, len(answer["dead-letters"])) == (0, "", 1)
    code, printed, _ = command(scene, "show", answer["dead-letters"][0]["id"], "--queue", queue)
    assert code == 0 and ["encoding", "json"] in [line.split() for line in printed.splitlines()] and "tenant" in printed, printed
    code, printed, said = command(scene, "list", "--queue", queue, "--limit", "1")
    assert said == "dlx-proxy: the first 1 of 4 messages were looked at\n"


def test_the_command_line_says_why_there_is_no_answer(scene):
    queue = scene.queue("dead", kind="classic")
    for words, expected in (
        (["list", "--queue", scene.name("nothing")], "NOT_FOUND - no queue"),
        (["list", "--queue", queue, "--older-than", "old"], "older-than=old: write a time with its unit"),
        (["list", "--queue", queue, "--columns", "id,it"], "there is no column `it`"),
        (["list", "--queue", queue, "--username", "nobody"], "ACCESS_REFUSED - Login was refused"),
    ):
        code, printed, said = command(scene, *words)
        assert (code, printed) == (1, "") and said.startswith(f"dlx-proxy: {expected}"), said


def test_who_consumes_alone_leaves_nothing_to_see(own):
    """With a single active consumer a look gets nothing, and says so in the end."""
    own.restart(look_timeout="1s")
    queue = own.queue("dead", x_single_active_consumer=True)
    way = SimpleNamespace(broker=own.via.broker, vhost=own.via.vhost, proxy=own.proxy)
    with own.via.direct.channel() as active:
        active.basic_qos(prefetch_count=1)
        active.basic_consume(queue, lambda *_: None)
        for _ in range(3):
            own.publish(queue)
        until(lambda: own.depth(queue) == 2, "one of three is out")
        status, answer, _ = ask(way, path(way, queue))
    assert (status, answer["looked-at"], answer["stopped"], answer["consumers"]) == (200, 0, "time", 1), answer
    assert answer["notes"][0].startswith("none of 2 messages came in time"), answer
    assert 'dlx_proxy_limits_met_total{limit="look-timeout"} 1\n' in own.proxy.get("/metrics")[1]
