"""A target that refuses, is missing or does not answer holds up nobody else: its dead letters wait and are parked, all others pass meanwhile."""

import time

import pika
import pytest

from lab import until
from muting import Muting
from own import INTAKE, PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

PREFETCH = 100
EACH = 150
"""Dead letters per target: more than the intake takes at once."""


def fan(own, label, **arguments):
    """A fanout exchange and its queue."""
    name = own.queue(label, **arguments)
    own.channel.exchange_declare(name, "fanout", durable=True)
    own.channel.queue_bind(name, name)
    return name


class Sources:
    """For each target a queue of either type; what dies in it by itself does so by age or by length."""

    def __init__(self, own, reason, targets):
        self.own, self.reason, self.queues = own, reason, {}
        for number, (label, target) in enumerate(targets.items()):
            dies = {} if reason == "rejected" else {"x_message_ttl": 1} if number % 2 else {"x_max_length": 1}
            kind = ["classic", "quorum"][number // 2 % 2]
            self.queues[label] = own.queue(f"{label}-source", x_queue_type=kind, x_dead_letter_exchange=target, **dies)

    def die(self, labels, sink):
        """EACH messages per label, turn by turn, until those of the last label are in `sink`. How many of them per second."""
        since, durable = time.monotonic(), pika.BasicProperties(delivery_mode=2)
        for number in range(EACH):
            for label in labels:
                self.own.channel.basic_publish("", self.queues[label], f"{label} {number}".encode(), durable)
        for label in labels if self.reason != "rejected" else []:
            self.own.channel.basic_publish("", self.queues[label], b"which pushes out the last one", durable)
        for _ in range(EACH if self.reason == "rejected" else 0):
            for label in labels:
                self.own.channel.basic_reject(self.own.get(self.queues[label])[0].delivery_tag, requeue=False)

        def arrived():
            return self.own.depth(sink)

        until(lambda: arrived() >= EACH, lambda: f"{arrived()} of {EACH} arrived", progress=arrived)
        return EACH / (time.monotonic() - since)


def parked(own):
    """Where to, why: what is parked, taken out at the broker itself, by body."""
    found = {}
    with own.via.direct.channel() as channel:
        while (got := channel.basic_get(PARKED, auto_ack=True))[0]:
            headers = got[1].headers
            found[got[2].decode()] = headers["x-parked-exchange"], headers["x-parked-cause"]
    return found


def all_parked(own, bad, found):
    """The causes by label, once each dead letter of these labels is parked; `found` so far. What is in its source again is rejected again."""
    wanted = {f"{label} {number}" for label in bad for number in range(EACH)}

    def look():
        for label in bad:
            while (got := own.channel.basic_get(f"{PREFIX}-{label}-source"))[0]:
                own.channel.basic_reject(got[0].delivery_tag, requeue=False)
        found.update(parked(own))
        return wanted <= found.keys()

    def count():
        return len(wanted & found.keys())

    def where():
        return f"{count()} of {len(wanted)} parked, in queues: {[(queue, own.depth(queue)) for queue in [*own.queues, INTAKE]]}"

    # What the first proxy had no time to forward is got and rejected one by one: where it all has little of a processor, that alone takes a minute.
    until(look, where, pause=0.2, progress=count)
    causes = {label: set() for label in bad}
    for body in wanted:
        label = body.split()[0]
        assert found[body][0] == bad[label]
        causes[label].add(found[body][1])
    until(lambda: own.depth(INTAKE) == 0, "intake is empty")
    return causes


@pytest.mark.parametrize("reason", ["rejected", "by itself"])
def test_targets_that_are_full_or_missing(own, reason):
    """Five full ones together want more than the intake has: it must not stall. When the client goes the rejects that wait
    go to the broker, and all come back by the intake, to the next proxy."""
    own.restart(intake_prefetch=PREFETCH, nack_retries=1000, close_wait="1s", drain_timeout="1s")
    full = {f"full{number}": fan(own, f"full{number}", x_max_length=1, x_overflow="reject-publish") for number in range(5)}
    for target in full.values():
        for _ in range(2):
            own.channel.basic_publish(target, "", b"full")
    bad = {**full, "missing": f"{PREFIX}-missing"}
    good = {f"good{number}": fan(own, f"good{number}") for number in range(6)} if reason != "rejected" else {}
    sources = Sources(own, reason, {"healthy": fan(own, "healthy"), **bad, **good, "other": fan(own, "other")})
    if good:
        print(f"{sources.die([*good, 'other'], f'{PREFIX}-other'):.0f} healthy ones per second beside six good targets")
    print(f"{sources.die([*bad, 'healthy'], f'{PREFIX}-healthy'):.0f} healthy ones per second beside six bad targets")

    found = parked(own)
    assert {cause for _, cause in found.values()} <= {"no_exchange", "target_busy"}, "a full target has been tried less than a thousand times"
    own.restart(intake_prefetch=PREFETCH, nack_retries=1)
    causes = all_parked(own, bad, found)
    assert causes.pop("missing") == {"no_exchange"}
    assert set.union(*causes.values()) == {"nacked", "target_busy"}


@pytest.mark.parametrize("reason", ["rejected", "by itself"])
def test_a_target_that_never_answers(own, reason):
    cable = Muting(own.via.broker.address)
    own.restart(address=cable.address, intake_prefetch=PREFETCH, confirm_timeout="2s", give_up_after="10m", close_wait="1s", drain_timeout="1s")
    silent = cable.exchange = fan(own, "silent")
    sources = Sources(own, reason, {"healthy": fan(own, "healthy"), "silent": silent})
    print(f"{sources.die(['silent', 'healthy'], f'{PREFIX}-healthy'):.0f} healthy ones per second beside a silent target")

    found = parked(own)
    assert {cause for _, cause in found.values()} <= {"target_busy"}, "a silent target has not been tried for ten minutes"
    # Whether others answer it learns by parking one; a quarter of `confirm-timeout` has to be enough for that, and for the parking queue's disk.
    own.restart(intake_prefetch=PREFETCH, confirm_timeout="4s", give_up_after="8s")
    causes = all_parked(own, {"silent": silent}, found)["silent"]
    # Rejects that the first proxy had no time to forward are not too much for the second: they are no load of the intake, which alone is small.
    assert causes in [{"timed_out", "target_busy"}, *([{"timed_out"}] if reason == "rejected" else [])]
    cable.close()
