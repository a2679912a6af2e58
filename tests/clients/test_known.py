"""The dead-letter queues that a proxy knows, and how it handles each queue: by the API, by the command line, and as metrics. What cannot be known is absent."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios

import pytest

from console import answer, ask, command, management, of_vhost, typed
from lab import DEADLINE, until
from scene import PARKED, PREFIX, user

pytestmark = pytest.mark.any_broker

MESSAGES, OLDEST = "dlx_proxy_dead_letter_queue_messages", "dlx_proxy_dead_letter_queue_oldest_seconds"


def known(own):
    return answer(own.via, of_vhost(own.via, "/dead-letter-queues"))


def listed(own, user=None):
    """Queues by name."""
    said = answer(own.via, of_vhost(own.via, "/dead-letter-queues"), user)
    return {queue["queue"]: queue for queue in said["dead-letter-queues"]}


def series(own, name):
    """The metric of this vhost, by queue, of ours: other proxies' queues are listed, too."""
    lines = own.proxy.get("/metrics")[1].splitlines()
    found = (re.match(rf'{name}{{vhost="{own.via.vhost}",queue="({PREFIX}[^"]*)"}} (\d+)', line) for line in lines)
    return {match[1]: int(match[2]) for match in found if match}


def prepared(own):
    """Three messages in a queue that is named, two behind an exchange, one parked."""
    dead, behind = own.queue("dead"), own.queue("behind")
    dlx = own.exchange("dlx", "topic")
    own.bind(behind, dlx, "late.#")
    own.die(own.queue("one", dlx="", dlk=dead), *[b"m"] * 3)
    own.die(own.queue("two", dlx=dlx, dlk="late.orders"), *[b"m"] * 2)
    own.die(own.queue("three", dlx="own-nowhere"))
    until(lambda: (own.depth(dead), own.depth(behind), own.depth(PARKED)) == (3, 2, 1), "all have arrived")
    return dead, behind


def test_with_the_management_api_they_have_numbers(own):
    settings = {"management_url": management(own.via), "parked_retry": "1s"}
    own.restart(**settings)
    dead, behind = prepared(own)
    until(lambda: series(own, MESSAGES) == {dead: 3, behind: 2, PARKED: 1}, lambda: f"all numbers in {series(own, MESSAGES)}")
    until(lambda: all(listed(own)[name]["oldest-seconds"] is not None for name in (dead, behind)), lambda: f"ages in {listed(own)}")
    queues, said = listed(own), known(own)
    assert queues[dead]["targets"] == [{"exchange": "", "routing-key": dead}]
    assert queues[behind]["targets"] == [{"exchange": "own-dlx", "routing-key": "late.orders"}]
    assert queues[PARKED]["parking"] and not queues[PARKED]["targets"]
    assert [queues[name]["dead-letters"] for name in (dead, behind, PARKED)] == [3, 2, 1]
    assert (said["elsewhere"], said["left-out"], said["notes"]) == ([], 0, [])
    assert queues[dead]["oldest-seconds"] < DEADLINE and {dead, behind} <= series(own, OLDEST).keys()

    # What somebody else put there may be the oldest.
    with own.via.direct.channel() as channel:
        own.publish("", dead, channel=channel)
    until(lambda: series(own, MESSAGES)[dead] == 4, lambda: series(own, MESSAGES))
    assert dead not in series(own, OLDEST) and listed(own)[dead]["oldest-seconds"] is None
    # A queue that has gone has no numbers.
    own.channel.queue_delete(behind)
    until(lambda: behind not in series(own, MESSAGES), lambda: series(own, MESSAGES))
    assert behind not in series(own, OLDEST) and behind not in listed(own)
    # After a restart the targets of queues are counted before anything dies.
    own.restart(**settings)
    for label, target in (("one", {"dlx": "", "dlk": dead}), ("three", {"dlx": "own-nowhere"})):
        own.queue(label, **target)
    until(lambda: known(own)["messages"] == 5, lambda: known(own))
    assert all(queue["dead-letters"] == 0 for queue in known(own)["dead-letter-queues"])
    until(lambda: {one["cause"]: one["messages"] for one in known(own)["parked"]} == {"no_exchange": 1}, lambda: known(own))


def test_without_it_they_are_listed_without_numbers(own):
    dead, behind = prepared(own)
    queues = listed(own)
    assert {name: queue["dead-letters"] for name, queue in queues.items()} == {dead: 3, PARKED: 1}
    assert all(queue["messages"] is None and queue["oldest-seconds"] is None for queue in queues.values())
    assert known(own)["elsewhere"] == [{"exchange": "own-dlx", "routing-key": "late.orders", "dead-letters": 2}]
    assert series(own, MESSAGES) == series(own, OLDEST) == {}
    # As the command line shows it.
    columns = ["--columns", "queue,dead-letters,targets,parking"]
    assert command(own, "queues", *columns, "-o", "tsv")[:2] == (0, f"{dead}\t3\tqueue {dead}\tfalse\n{PARKED}\t1\t\ttrue\n")
    assert command(own, "queues", "*.no-such", *columns)[1].startswith("No dead-letter queues that you may read.\n")
    assert command(own, "queues", PARKED[:-2] + "*", *columns, "-o", "tsv")[1] == f"{PARKED}\t1\t\ttrue\n"
    table = command(own, "queues", *columns)[1]
    assert [line.split() for line in table.splitlines()[-2:]] == [["DEAD-LETTERS", "EXCHANGE", "ROUTING-KEY"], ["2", "own-dlx", "late.orders"]], table
    printed = json.loads(command(own, "queues", "--output", "json")[1])
    assert [queue["queue"] for queue in printed["dead-letter-queues"]] == [dead, PARKED]
    # A user sees those that the user may read.
    assert ask(own.via, of_vhost(own.via, "/dead-letter-queues"), "stranger")[0] == 403
    with user(own.via, "reader", "^$", "^$", f"^{dead}$"):
        assert listed(own, "reader").keys() == {dead}


def test_an_alarm_of_the_broker_is_seen_where_nobody_publishes(own):
    own.restart(management_url=management(own.via))
    gauge = lambda: own.proxy.metric("dlx_proxy_broker_alarms", resource="memory")
    assert (gauge(), known(own)["alarms"]) == (0, [])
    with own.via.broker.under_memory_alarm():
        until(lambda: gauge() == 1, own.proxy.text)
        (alarm,) = known(own)["alarms"]
        assert alarm.startswith("memory of node ") and "the broker has an alarm" in own.proxy.text()
    until(lambda: gauge() == 0, own.proxy.text)
    assert known(own)["alarms"] == []


def test_how_each_queue_is_handled_is_listed_with_what_to_do(own):
    def handled(user=None):
        """By queue: state, cause, whether its target leads to a queue."""
        said = answer(own.via, of_vhost(own.via, "/queues"), user)
        assert said["left-out"] == 0 and {row["cause"] for row in said["queues"]} == said["causes"].keys()
        return {row["queue"]: (row["state"], row["cause"], row["leads-to"]) for row in said["queues"] if row["queue"].startswith(PREFIX)}

    dead = own.queue("dead")
    own.queue("full", dlx="", dlk=dead)
    own.queue("lost", dlx="", dlk="own-gone")
    own.made("made", dlx="own-dlx")
    own.queue("made", dlx="own-dlx")
    with user(own.via, "own-client", "^own", r"^(own-.*|amq\.default)$", "^own-narrow$") as client:
        with own.via.connect(user=client) as connection:
            own.queue("narrow", channel=connection.channel(), dlx="", dlk=dead)
        assert handled() == {
            "own-full": ("full", "taken-over", "queue"), "own-lost": ("full", "taken-over", "no-queue"),
            "own-made": ("rejects-only", "own-arguments", "unknown"), "own-narrow": ("rejects-only", "no-permission", "queue"),
        }
        assert handled(client).keys() == {"own-narrow"}, "what the user may read"
    code, table, _ = command(own, "--state", "rejects-only", "--columns", "queue,cause", "-o", "tsv", group="queues")
    assert (code, table) == (0, "own-narrow\tno-permission\nown-made\town-arguments\n")
    assert command(own, "own-l*", "--columns", "queue", "-o", "tsv", group="queues")[1] == "own-lost\n"
    assert list(handled())[0] == "own-lost", "what leads nowhere comes first"
    # With bindings that can be read it is known that there is no such exchange.
    own.restart(management_url=management(own.via))
    own.queue("made", dlx="own-dlx")
    until(lambda: handled().get("own-made") == ("rejects-only", "own-arguments", "no-exchange"), handled)


def test_status_says_how_it_is_and_watch_what_dies(own):
    status = lambda *words: command(own, *words, group="status")
    assert until(lambda: (now := status())[0] == 0 and now, status)[1].startswith("Healthy.\n")
    one = own.queue("one", dlx="", dlk=own.queue("dead"))
    with subprocess.Popen(**typed(own, one, "-o", "json", group="watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            assert "Healthy." in watch.stderr.readline()
            until(lambda: own.die(one, b"m") or select.select([watch.stdout], [], [], 1)[0], "one that dies while it is watched")
            death = json.loads(watch.stdout.readline())
            assert (death["queue"], death["reason"], death["outcome"]) == (one, "rejected", "confirmed")
            watch.send_signal(signal.SIGINT)
            assert watch.wait(DEADLINE) == 0
        finally:
            watch.kill()
    assert json.loads(status("-o", "json")[1])["healthy"] is True


def test_a_password_that_is_missing_is_asked_for_on_a_terminal(own):
    words = typed(own, "--username", "all-rights", group="status")
    del words["env"]["DLX_PROXY_PASSWORD"]
    child, terminal = pty.fork()
    if child == 0:
        os.execve(words["args"][0], words["args"], words["env"])
    shown = b""

    def read():
        nonlocal shown
        if select.select([terminal], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # it has ended
                shown += os.read(terminal, 1 << 16)
        return shown

    is_hidden = lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO
    try:
        until(lambda: read() == b"Password of all-rights: " and is_hidden(), lambda: shown)
        os.write(terminal, b"secret\n")
        _, status = until(lambda: read() and (ended := os.waitpid(child, os.WNOHANG))[0] and ended, lambda: shown)
    finally:
        os.close(terminal)  # which ends it if it goes on
    assert status == 0 and b"redrives" in shown and b"secret" not in shown, shown
