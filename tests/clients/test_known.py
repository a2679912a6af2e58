"""The dead-letter queues that a proxy knows: by the API, by the command line, and as metrics. What cannot be known is absent."""

import json
import os
import re
import urllib.parse
from types import SimpleNamespace

import pika
import pytest

from lab import DEADLINE, until
from own import PARKED, PREFIX, own  # noqa: F401
from test_dead_letters import ask, command

pytestmark = [pytest.mark.once, pytest.mark.proxied]

MESSAGES, OLDEST = "dlx_proxy_dead_letter_queue_messages", "dlx_proxy_dead_letter_queue_oldest_seconds"


def management(via):
    """Where the management API of the broker is."""
    pairs = (pair.split("=", 1) for pair in os.environ.get("DLX_TEST_MANAGEMENT", "").split(",") if pair)
    return dict(pairs)[via.broker.version]


def listed(own, user=None):
    """All of the answer, its queues by name."""
    vhost = urllib.parse.quote(own.via.vhost, safe="")
    status, answer, _ = ask(SimpleNamespace(broker=own.via.broker, proxy=own.proxy), f"/api/v1/vhosts/{vhost}/dead-letter-queues", user)
    assert status == 200, answer
    queues = {queue["queue"]: queue for queue in answer["dead-letter-queues"]}
    return SimpleNamespace(queues=queues, elsewhere=answer["elsewhere"], left_out=answer["left-out"], notes=answer["notes"])


def series(own, name):
    """The metric of this vhost, by queue."""
    lines = own.proxy.get("/metrics")[1].splitlines()
    found = (re.match(rf'{name}{{vhost="{own.via.vhost}",queue="([^"]*)"}} (\d+)', line) for line in lines)
    return {match[1]: int(match[2]) for match in found if match}


def target(exchange, key):
    return {"exchange": exchange, "routing-key": key}


def die(own, source, count):
    """So many messages are rejected there."""
    for _ in range(count):
        own.publish(source)
        own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)


def scene(own):
    """Three messages in a queue that is named, two behind an exchange, one parked."""
    dead, behind = own.queue("dead"), own.queue("behind")
    own.channel.exchange_declare("own-dlx", "topic")
    own.channel.queue_bind(behind, "own-dlx", "late.#")
    die(own, own.queue("one", x_dead_letter_exchange="", x_dead_letter_routing_key=dead), 3)
    die(own, own.queue("two", x_dead_letter_exchange="own-dlx", x_dead_letter_routing_key="late.orders"), 2)
    before = own.depth(PARKED)
    die(own, own.queue("three", x_dead_letter_exchange="own-nowhere"), 1)
    until(lambda: (own.depth(dead), own.depth(behind), own.depth(PARKED)) == (3, 2, before + 1), "all have arrived")
    return dead, behind


def test_with_the_management_api_they_have_numbers(own):
    own.restart(management_url=management(own.via))
    dead, behind = scene(own)
    # Targets of queues that other proxies have taken over are listed, too.
    ours = lambda numbers: {name: number for name, number in numbers.items() if name.startswith(PREFIX)}
    all_of = lambda: ours({name: queue["messages"] for name, queue in listed(own).queues.items()})
    until(lambda: all_of() == {dead: 3, behind: 2, PARKED: own.depth(PARKED)}, lambda: f"all numbers in {all_of()}")
    until(lambda: all(listed(own).queues[name]["oldest-seconds"] is not None for name in (dead, behind)), lambda: f"ages in {listed(own)}")
    answer = listed(own)
    assert answer.queues[dead]["targets"] == [target("", dead)]
    assert answer.queues[behind]["targets"] == [target("own-dlx", "late.orders")]
    assert answer.queues[PARKED]["parking"] and not answer.queues[PARKED]["targets"]
    assert [answer.queues[name]["dead-letters"] for name in (dead, behind, PARKED)] == [3, 2, 1]
    assert (answer.elsewhere, answer.left_out, answer.notes) == ([], 0, [])
    assert answer.queues[dead]["oldest-seconds"] < DEADLINE

    assert ours(series(own, MESSAGES)) == {dead: 3, behind: 2, PARKED: own.depth(PARKED)}
    assert {dead, behind} <= series(own, OLDEST).keys()

    # What somebody else put there may be the oldest.
    with own.via.direct.channel() as channel:
        channel.basic_publish("", dead, b"foreign", pika.BasicProperties(delivery_mode=2))
    until(lambda: series(own, MESSAGES)[dead] == 4, lambda: series(own, MESSAGES))
    assert dead not in series(own, OLDEST)
    assert listed(own).queues[dead]["oldest-seconds"] is None

    # A queue that has gone has no numbers.
    own.channel.queue_delete(behind)
    until(lambda: behind not in series(own, MESSAGES), lambda: series(own, MESSAGES))
    assert behind not in series(own, OLDEST) and behind not in listed(own).queues


def test_without_it_they_are_listed_without_numbers(own):
    dead, behind = scene(own)
    answer = listed(own)
    assert answer.queues.keys() == {dead, PARKED}
    assert [answer.queues[name]["dead-letters"] for name in (dead, PARKED)] == [3, 1]
    for queue in answer.queues.values():
        assert queue["messages"] is None and queue["oldest-seconds"] is None
    assert answer.elsewhere == [target("own-dlx", "late.orders") | {"dead-letters": 2}]
    assert series(own, MESSAGES) == series(own, OLDEST) == {}

    # As the command line shows it.
    way = SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, proxy=own.proxy, vhost=own.via.vhost))
    columns = ["--columns", "queue,dead-letters,targets,parking"]
    code, table, _ = command(way, "queues", *columns, "--non-interactive")
    assert (code, table) == (0, f"{dead}\t3\tqueue {dead}\tfalse\n{PARKED}\t1\t\ttrue\n")
    code, table, _ = command(way, "queues", *columns)
    elsewhere = table.splitlines()[-2:]
    assert code == 0 and [line.split() for line in elsewhere] == [["DEAD-LETTERS", "EXCHANGE", "ROUTING-KEY"], ["2", "own-dlx", "late.orders"]], table
    code, text, _ = command(way, "queues", "--output", "json")
    assert code == 0 and [queue["queue"] for queue in json.loads(text)["dead-letter-queues"]] == [dead, PARKED]


def test_a_user_sees_the_queues_that_the_user_may_read(own):
    dead, _ = scene(own)
    status, answer, _ = ask(SimpleNamespace(broker=own.via.broker, proxy=own.proxy), f"/api/v1/vhosts/{own.via.vhost}/dead-letter-queues", "stranger")
    assert status == 403, answer
    own.via.broker.permit(own.via.vhost, "stranger", "^$", "^$", f"^{dead}$")
    try:
        assert listed(own, "stranger").queues.keys() == {dead}
        assert listed(own).queues.keys() == {dead, PARKED}
    finally:
        own.via.broker._call("rabbit_auth_backend_internal:clear_permissions", "stranger", own.via.vhost)


def test_an_alarm_of_the_broker_is_seen_where_nobody_publishes(own):
    own.restart(vhosts=own.via.vhost, management_url=management(own.via))
    vhost = urllib.parse.quote(own.via.vhost, safe="")
    way = SimpleNamespace(broker=own.via.broker, proxy=own.proxy)
    alarms = lambda: ask(way, f"/api/v1/vhosts/{vhost}/dead-letter-queues")[1]["alarms"]
    gauge = lambda: re.search(r'^dlx_proxy_broker_alarms{resource="memory"} (\d)', own.proxy.get("/metrics")[1], re.M)[1]
    until(lambda: gauge() == "0", own.proxy.text)
    assert alarms() == []
    with own.via.broker.under_memory_alarm():
        until(lambda: gauge() == "1", own.proxy.text)
        assert len(alarms()) == 1 and alarms()[0].startswith("memory of node ")
        assert "the broker has an alarm" in own.proxy.text()
    until(lambda: gauge() == "0", own.proxy.text)
    assert alarms() == []


def handled(own, *words, user=None):
    """What the command `queues` prints for scripts, by queue: state, cause, target, whether it leads to a queue."""
    way = SimpleNamespace(broker=own.via.broker, proxy=own.proxy)
    status, answer, _ = ask(way, f"/api/v1/vhosts/{urllib.parse.quote(own.via.vhost, safe='')}/queues", user)
    assert status == 200 and answer["left-out"] == 0, answer
    rows = {row["queue"]: (row["state"], row["cause"], row["leads-to"]) for row in answer["queues"]}
    assert {row["cause"] for row in answer["queues"]} == answer["causes"].keys()
    return {queue: row for queue, row in rows.items() if queue.startswith("own")}


def test_after_a_restart_the_targets_of_queues_are_counted_before_anything_dies(own):
    settings = {"management_url": management(own.via), "parked_retry": "1s"}
    own.restart(**settings)
    dead, behind = scene(own)
    own.restart(**settings)
    for label, dlx, key in [("one", "", dead), ("two", "own-dlx", "late.orders"), ("three", "own-nowhere", None)]:
        own.queue(label, x_dead_letter_exchange=dlx, **({"x_dead_letter_routing_key": key} if key is not None else {}))
    vhost = urllib.parse.quote(own.via.vhost, safe="")
    answer = lambda: ask(SimpleNamespace(broker=own.via.broker, proxy=own.proxy), f"/api/v1/vhosts/{vhost}/dead-letter-queues")[1]
    parked = own.depth(PARKED)
    until(lambda: answer()["messages"] == 5 + parked, lambda: answer())
    assert all(queue["dead-letters"] == 0 for queue in answer()["dead-letter-queues"])
    until(lambda: {one["cause"]: one["messages"] for one in answer()["parked"]} == {"no_exchange": parked}, lambda: answer())


def test_how_each_queue_is_handled_is_listed_with_what_to_do(own):
    way = SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, proxy=own.proxy, vhost=own.via.vhost))
    user = "own-client"
    own.via.broker.make([], [(user, "secret")], [(user, own.via.vhost, "^own", r"^(own-.*|amq\.default)$", "^own-narrow$")])
    dead = own.queue("dead")
    own.queue("full", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    own.queue("lost", x_dead_letter_exchange="", x_dead_letter_routing_key="own-gone")
    with own.via.direct.channel() as channel:
        channel.queue_declare("own-made", durable=True, arguments={"x-dead-letter-exchange": "own-dlx"})
    own.queue("made", x_dead_letter_exchange="own-dlx")
    login = pika.PlainCredentials(user, "secret")
    with pika.BlockingConnection(pika.ConnectionParameters(*own.proxy.address, own.via.vhost, login)) as connection:
        connection.channel().queue_declare("own-narrow", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    own.queues.append("own-narrow")
    expected = {
        "own-full": ("full", "taken-over", "queue"), "own-lost": ("full", "taken-over", "no-queue"),
        "own-made": ("rejects-only", "own-arguments", "unknown"), "own-narrow": ("rejects-only", "no-permission", "queue"),
    }
    assert handled(own) == expected
    assert handled(own, user=user).keys() == {"own-narrow"}, "what the user may read"
    code, table, _ = command(way, "--state", "rejects-only", "--columns", "queue,cause", "--non-interactive", group="queues")
    assert (code, table) == (0, "own-narrow\tno-permission\nown-made\town-arguments\n")
    assert list(handled(own))[0] == "own-lost", "what leads nowhere comes first"

    # With bindings that can be read it is known that there is no such exchange.
    own.restart(management_url=management(own.via))
    own.queue("made", x_dead_letter_exchange="own-dlx")
    until(lambda: handled(own).get("own-made") == ("rejects-only", "own-arguments", "no-exchange"), lambda: handled(own))
