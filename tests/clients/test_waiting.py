"""`dlx-proxy retries` shows what waits for a retry and lets it go, with a proxy or without one."""

import datetime
import json
import re
import subprocess
import sys
import time

import pytest

from console import management
from lab import BINARY, DEADLINE, REPOSITORY, environment, inherited, until
from scene import INTAKE, PREFIX

pytestmark = pytest.mark.every_broker

MINUTES = 600_000
"""A delay that is not over before a test is, in milliseconds."""
DELAY = f"{PREFIX}.delay.{MINUTES}"


def start(own, *words, upstream=None):
    place = ["--upstream", upstream or own.upstream, "--vhost", own.via.vhost]
    if "--management-url" not in words:
        place += ["--delay", str(MINUTES)]
    return subprocess.Popen([BINARY, "retries", *words, *place], env=inherited() | environment(prefix=PREFIX), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def retries(own, *words):
    """What the command says, as JSON."""
    command = start(own, *words, "--output", "json")
    said, error = command.communicate(timeout=DEADLINE)
    assert command.returncode == 0, error
    return json.loads(said)


def moved(own, *words):
    """How many it released or removed, and put back."""
    (said,) = retries(own, *words)["delay-queues"]
    return said.get("removed") if words[0] == "purge" else said["released"], said["put-back"]


def waits(own, count):
    # Not looked at before it runs: 3.10 would close the connection.
    waiting = lambda: own.depth(DELAY) if DELAY in own.via.broker.queues(own.via.vhost) else 0
    until(lambda: waiting() == count, lambda: f"{waiting()} of {count} wait")


def numbers(count):
    return [b"%d" % number for number in range(count)]


def send_away(own, label, bodies):
    """A queue whose messages wait for minutes, and these messages, returned by a client."""
    queue = own.queue(label, retry_min=MINUTES)
    for body in bodies:
        own.publish("", queue, body)
        own.give_back(queue)
    return queue


def come_back(own, queue, bodies, attempts=1):
    """They are in their queue again, in this order, and have come back so often."""
    counted = "x-acquired-count" if own.via.broker.is_from(4, 3) else "x-delivery-count"
    for body in bodies:
        method, properties, got = own.get(queue)
        assert got == body and method.redelivered and properties.headers[counted] == attempts
        own.channel.basic_ack(method.delivery_tag)


def test_what_waits_is_listed_and_released(own):
    begun = time.time()
    orders, jobs = send_away(own, "orders", numbers(12)), send_away(own, "jobs", numbers(2))
    waits(own, 14)
    done = time.time()
    said = retries(own, "list")
    assert said["delay-queues"] == [
        {"vhost": own.via.vhost, "queue": DELAY, "delay-ms": MINUTES, "waiting": 14, "leaving": None, "scanned": 14, "has-delivery-limit": False}]
    assert [(of["queue"], of["messages"], of["attempts"], of["overdue"]) for of in said["queues"]] == [(jobs, 2, [1, 1], 0), (orders, 12, [1, 1], 0)]
    for of in said["queues"]:
        due = [datetime.datetime.fromisoformat(of[name].replace("Z", "+00:00")).timestamp() - MINUTES / 1000 for name in ("earliest", "latest")]
        assert begun - 1 <= due[0] <= due[1] <= done
    assert said["intake"] == [{"vhost": own.via.vhost, "queue": INTAKE, "messages": 0, "proxies": 1}]
    # Of one queue: the others stay, with their time, and in their order.
    assert moved(own, "release", orders) == (12, 2)
    come_back(own, orders, numbers(12))
    waits(own, 2)
    assert retries(own, "list")["queues"] == said["queues"][:1]
    table, error = start(own, "list", "--messages", "0").communicate(timeout=DEADLINE)
    assert next(line.split() for line in table.splitlines() if DELAY in line) == [own.via.vhost, DELAY, "2", "0"], error
    # To look changes nothing: more often than the delivery limit that 4.x gives a queue that says none.
    for _ in range(25):
        assert retries(own, "list")["delay-queues"][0]["scanned"] == 2
        own.has(DELAY, 2)
    for attempt in (1, 2):
        assert moved(own, "release") == (2, 0)
        if attempt == 1:
            own.has(jobs, 2)
            for _ in range(2):
                own.give_back(jobs)
            waits(own, 2)
    come_back(own, jobs, numbers(2), 2)
    # Who may not is told the words of the broker.
    stranger = start(own, "release", upstream="amqp://stranger:secret@%s:%d" % own.via.broker.address)
    said, error = stranger.communicate(timeout=DEADLINE)
    assert (stranger.returncode, said) == (1, "") and "NOT_ALLOWED" in error and "stranger" in error, error


def test_the_management_api_tells_the_delay_queues(own):
    queue = send_away(own, "orders", numbers(1))
    api = ("--management-url", management(own.via))
    waits(own, 1)
    of_delay = lambda: next((of for of in retries(own, "list", *api)["delay-queues"] if of["queue"] == DELAY), {})
    # What it tells is some seconds old.
    until(lambda: of_delay().get("leaving") == 0, of_delay, pause=0.5)
    assert of_delay().items() >= {"waiting": 1, "has-delivery-limit": False}.items()
    retries(own, "release", *api)
    come_back(own, queue, numbers(1))


def test_a_purge_is_told_that_messages_wait_and_the_command_removes_them(own):
    """Those of another queue stay. Without a proxy what is released waits for one."""
    orders, jobs = (send_away(own, label, numbers(5)) for label in ("orders", "jobs"))
    waits(own, 10)
    own.channel.queue_purge(orders)
    told = "messages that wait for a retry are not in the queue that was purged"
    until(lambda: [orders in line for line in own.proxy.text().splitlines() if told in line] == [True], own.proxy.text)
    assert moved(own, "purge", orders) == (5, 5)
    waits(own, 5)
    own.stop()
    (note,) = retries(own, "release")["notes"]
    assert note.startswith(f"no proxy takes messages from {INTAKE}")
    own.has(INTAKE, 5)
    assert retries(own, "list")["intake"] == [{"vhost": own.via.vhost, "queue": INTAKE, "messages": 5, "proxies": 0}]
    own.start()
    come_back(own, jobs, numbers(5))
    assert own.depth(orders) == 0


def test_killed_in_the_middle_it_loses_nothing(own):
    queue = send_away(own, "orders", numbers(300))
    waits(own, 300)
    own.stop()
    command = start(own, "release", queue)
    until(lambda: own.depth(INTAKE) > 20, "it has begun", pause=0.001)
    command.kill()
    command.communicate(timeout=DEADLINE)
    until(lambda: own.depth(INTAKE) + own.depth(DELAY) == 300, "each is in one of both")
    retries(own, "release")
    own.start()
    assert {own.get(queue).body for _ in range(300)} == set(numbers(300))
    assert own.depth(queue) == own.depth(DELAY) == 0


def test_when_there_is_no_proxy_any_more(own):
    """The script of the document: it moves what waits, in the delay queue or the intake queue, and no dead letter."""
    queue, dies = own.queue("orders", retry_min=MINUTES), own.queue("dies", dlx="", ttl=1)
    sent = {"headers": {"n": 1, "x-opt-delivery-time": 5}, "priority": 3, "expiration": "900000", "content_type": "text/plain"}
    for number in numbers(4):
        own.publish("", queue, number, **sent | {"headers": sent["headers"] | {"CC": ["copy"]}})  # which would lead elsewhere again
        own.give_back(queue)
    waits(own, 4)
    own.stop()
    with own.via.direct.channel() as channel:
        own.publish("", dies, b"a dead letter", channel=channel)
        own.reject(DELAY, 2, channel=channel)
    until(lambda: (own.depth(INTAKE), own.depth(DELAY)) == (3, 2), "two are in the intake queue, and the dead letter")
    (script,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/reference/retries.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", script, f"{own.upstream}/{own.via.vhost}", INTAKE, DELAY], check=True, timeout=DEADLINE)
    until(lambda: (own.depth(INTAKE), own.depth(DELAY), own.depth(queue)) == (1, 0, 4), "all but the dead letter are moved")
    for number, (_, properties, body) in zip(numbers(4), own.all_of(queue, 4), strict=True):
        assert body == number
        assert {name: value for name, value in vars(properties).items() if value is not None} == sent | {"delivery_mode": 2}
    own.start()
