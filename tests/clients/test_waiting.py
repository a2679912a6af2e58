"""`dlx-proxy retries` shows what waits for a retry and lets it go, with a proxy or without one."""

import datetime
import json
import os
import re
import subprocess
import sys
import time

import pika
import pytest

from lab import BINARY, DEADLINE, REPOSITORY, until
from own import INTAKE, PREFIX, own  # noqa: F401, a fixture
from test_known import management
from test_retries import counted, counts

pytestmark = [pytest.mark.once, pytest.mark.proxied, pytest.mark.every_broker]

MINUTES = 600_000
"""A delay that is not over before a test is, in milliseconds."""
DELAY = f"{PREFIX}.delay.{MINUTES}"


def start(own, *arguments, upstream=None):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DLX_PROXY_")}
    place = ["--upstream", upstream or own.upstream, "--vhost", own.via.vhost]
    if "--management-url" not in arguments:
        place += ["--delay", str(MINUTES)]
    return subprocess.Popen(
        [BINARY, "retries", *arguments, *place],
        env=inherited | {"DLX_PROXY_PREFIX": PREFIX}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def retries(own, *arguments):
    """What the command says, as JSON."""
    command = start(own, *arguments, "--output", "json")
    said, error = command.communicate(timeout=DEADLINE)
    assert command.returncode == 0, error
    return json.loads(said)


def listed(own, *arguments):
    said = retries(own, "list", *arguments)
    assert all(of["vhost"] == own.via.vhost for name in ("delay-queues", "queues", "intake") for of in said[name]), said
    return said


def waiting(own):
    try:
        return own.depth(DELAY)
    except pika.exceptions.ChannelClosedByBroker as refusal:  # the first message that waits makes it
        assert refusal.reply_code == 404
        return 0


def waits(own, count):
    until(lambda: waiting(own) == count, lambda: f"{waiting(own)} of {count} wait")


def send_away(own, label, bodies):
    """A queue whose messages wait for minutes, and these messages, returned by a client."""
    queue = own.queue(label, x_delayed_retry_min=MINUTES)
    for body in bodies:
        own.publish(queue, body)
    give_back(own, queue, len(bodies))
    return queue


def give_back(own, queue, count):
    if DELAY not in own.queues:
        own.queues.append(DELAY)
    for _ in range(count):
        own.channel.basic_nack(own.get(queue)[0].delivery_tag, requeue=True)


def come_back(own, queue, bodies, attempts=1):
    """They are in their queue again, in this order, and have come back so often."""
    for body in bodies:
        method, properties, got = own.get(queue)
        assert got == body and method.redelivered
        assert counted(properties) == counts(own.via, attempts, 0)
        own.channel.basic_ack(method.delivery_tag)


def numbers(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def test_what_waits_is_listed(own):
    begun = time.time()
    send_away(own, "orders", numbers(3))
    send_away(own, "jobs", numbers(2))
    waits(own, 5)
    ended = time.time()
    said = listed(own)
    assert said["delay-queues"] == [
        {"vhost": own.via.vhost, "queue": DELAY, "delay-ms": MINUTES, "waiting": 5, "leaving": None, "looked-at": 5, "has-delivery-limit": False}]
    assert [(of["queue"], of["messages"], of["attempts"], of["overdue"]) for of in said["queues"]] == [
        ("own-jobs", 2, [1, 1], 0), ("own-orders", 3, [1, 1], 0)]
    for of in said["queues"]:
        due = [datetime.datetime.fromisoformat(of[name].replace("Z", "+00:00")).timestamp() - MINUTES / 1000 for name in ("earliest", "latest")]
        assert begun - 1 <= due[0] <= due[1] <= ended
    assert said["intake"] == [{"vhost": own.via.vhost, "queue": INTAKE, "messages": 0, "proxies": 1}]
    command = start(own, "list", "--messages", "0")
    table, error = command.communicate(timeout=DEADLINE)
    row = next(line.split() for line in table.splitlines() if DELAY in line)
    assert row == [own.via.vhost, DELAY, "5", "0"], error


def test_the_management_api_tells_the_delay_queues(own):
    queue = send_away(own, "orders", numbers(1))
    api = ("--management-url", management(own.via))
    waits(own, 1)
    # What it tells is some seconds old.
    until(lambda: of_delay(listed(own, *api)).get("leaving") == 0, lambda: listed(own, *api), pause=0.5)
    said = listed(own, *api)
    of = of_delay(said)
    assert (of["waiting"], of["has-delivery-limit"], said["intake"][0]["proxies"]) == (1, False, 1), said
    assert [(of["queue"], of["messages"]) for of in said["queues"]] == [(queue, 1)]
    retries(own, "release", *api)
    come_back(own, queue, numbers(1))


def of_delay(said):
    return next((of for of in said["delay-queues"] if of["queue"] == DELAY), {})


def test_to_look_changes_nothing(own):
    """More often than the delivery limit that 4.x gives a queue that says none."""
    queue = send_away(own, "orders", numbers(12))
    waits(own, 12)
    for _ in range(25):
        assert listed(own, "--messages", "5")["delay-queues"][0]["looked-at"] == 5
        waits(own, 12)
    assert own.depth(INTAKE) == 0
    retries(own, "release")
    come_back(own, queue, numbers(12))


def test_what_is_released_comes_back_at_once(own):
    queue = send_away(own, "orders", numbers(5))
    for attempt in range(1, 4):
        waits(own, 5)
        (released,) = retries(own, "release")["delay-queues"]
        assert (released["released"], released["put-back"]) == (5, 0)
        if attempt < 3:
            until(lambda: own.depth(queue) == 5, "they are back")
            give_back(own, queue, 5)
    come_back(own, queue, numbers(5), 3)
    waits(own, 0)


def test_without_a_proxy_what_is_released_waits_for_one(own):
    queue = send_away(own, "orders", numbers(5))
    waits(own, 5)
    own.stop()
    assert listed(own)["intake"][0]["proxies"] == 0
    (note,) = retries(own, "release")["notes"]
    assert note.startswith(f"no proxy takes messages from {INTAKE}")
    until(lambda: own.depth(INTAKE) == 5, "they are in the intake queue")
    assert listed(own)["intake"] == [{"vhost": own.via.vhost, "queue": INTAKE, "messages": 5, "proxies": 0}]
    own.start()
    come_back(own, queue, numbers(5))


def test_of_one_queue(own):
    """The others stay, with their time, and in their order."""
    orders, jobs = (send_away(own, label, []) for label in ("orders", "jobs"))
    for number in numbers(20):
        for queue in orders, jobs:
            own.publish(queue, number)
            give_back(own, queue, 1)
    waits(own, 40)
    of_jobs, of_orders = listed(own)["queues"]
    assert (of_jobs["queue"], of_orders["queue"]) == (jobs, orders)
    (released,) = retries(own, "release", "--queue", orders)["delay-queues"]
    assert (released["released"], released["put-back"]) == (20, 20)
    come_back(own, orders, numbers(20))
    waits(own, 20)
    assert listed(own)["queues"] == [of_jobs]
    retries(own, "release", "--queue", jobs)
    come_back(own, jobs, numbers(20))


def test_a_purge_is_told_that_messages_wait_and_the_command_removes_them(own):
    """Those of another queue stay."""
    orders, jobs = (send_away(own, label, numbers(5)) for label in ("orders", "jobs"))
    waits(own, 10)
    own.channel.queue_purge(orders)
    told = "messages that wait for a retry are not in the queue that was purged"
    until(lambda: [orders in line for line in own.proxy.text().splitlines() if told in line] == [True], own.proxy.text)
    (removed,) = retries(own, "purge", "--queue", orders)["delay-queues"]
    assert (removed["removed"], removed["put-back"]) == (5, 5)
    waits(own, 5)
    retries(own, "release")
    come_back(own, jobs, numbers(5))
    assert own.depth(orders) == 0


def test_killed_in_the_middle_it_loses_nothing(own):
    bodies = numbers(300)
    queue = send_away(own, "orders", bodies)
    waits(own, 300)
    own.stop()
    command = start(own, "release", "--queue", queue)
    until(lambda: own.depth(INTAKE) > 20, "it has begun", pause=0.001)
    command.kill()
    command.communicate(timeout=DEADLINE)
    until(lambda: own.depth(INTAKE) + own.depth(DELAY) == 300, "each is in one of both")
    retries(own, "release")
    own.start()
    got = {own.get(queue)[2] for _ in bodies}
    assert got == set(bodies)
    assert own.depth(queue) == own.depth(DELAY) == 0


def test_when_there_is_no_proxy_any_more(own):
    """The script of the document: it moves what waits, in the delay queue or the intake queue, and no dead letter."""
    queue = own.queue("orders", x_delayed_retry_min=MINUTES)
    dies = own.queue("dies", x_dead_letter_exchange="", x_message_ttl=1)
    sent = {"headers": {"n": 1, "x-opt-delivery-time": 5}, "priority": 3, "expiration": "900000", "content_type": "text/plain"}
    for number in numbers(4):
        own.publish(queue, number, **sent | {"headers": sent["headers"] | {"CC": ["copy"]}})  # which would lead elsewhere again
    give_back(own, queue, 4)
    waits(own, 4)
    own.stop()
    with own.via.direct.channel() as channel:
        channel.basic_publish("", dies, b"a dead letter")
        for _ in range(2):
            channel.basic_reject(channel.basic_get(DELAY)[0].delivery_tag, requeue=False)
    until(lambda: (own.depth(INTAKE), own.depth(DELAY)) == (3, 2), "two are in the intake queue, and the dead letter")
    (script,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/retries.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", script, f"{own.upstream}/{own.via.vhost}", INTAKE, DELAY], check=True, timeout=DEADLINE)
    until(lambda: (own.depth(INTAKE), own.depth(DELAY), own.depth(queue)) == (1, 0, 4), "all but the dead letter are moved")
    with own.via.direct.channel() as channel:
        for number in numbers(4):
            _, properties, body = channel.basic_get(queue, auto_ack=True)
            assert body == number
            said = {name: value for name, value in vars(properties).items() if value is not None}
            assert said == sent | {"delivery_mode": 2}


def test_who_may_not_is_told_the_words_of_the_broker(own):
    send_away(own, "orders", [b"stays"])
    waits(own, 1)
    host, port = own.address
    command = start(own, "release", upstream=f"amqp://stranger:secret@{host}:{port}")
    said, error = command.communicate(timeout=DEADLINE)
    assert command.returncode == 1 and said == ""
    assert "NOT_ALLOWED" in error and "stranger" in error, error
    assert own.depth(DELAY) == 1
