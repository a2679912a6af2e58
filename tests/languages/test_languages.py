"""What a client library shows is the same with and without the proxy, but for what docs/guarantees.md states."""

import re
import time

import pytest

from conftest import KINDS
from lab import until
from programs import LIBRARIES

STEPS = ["connect", "declare", "publish", "consume", "dead letters", "second death", "get", "refused", "delete", "close"]

WORK = ("work", "rejected", "1", "", "work")
DEATHS = {
    "dead letters": [("nacked", [WORK]), ("rejected", [WORK]), ("late", [("brief", "expired", "1", "", "brief")])],
    "second death": [("nacked", [("dead letters", "rejected", "1", "dead", "work"), WORK])],
}
"""Of each dead letter its body and its deaths: queue, reason, count, exchange, key."""

TAKEN_OVER = {("work", "rejected"): 2, ("brief", "expired"): 1, ("dead letters", "rejected"): 1}


def value(leaf):
    """Of `TYPE VALUE` the value."""
    return leaf.split(" ", 1)[1]


def deaths(deliveries):
    def death(entry):
        (key,) = entry["routing-keys"]
        return tuple(value(leaf) for leaf in (*(entry[name] for name in ("queue", "reason", "count", "exchange")), key))

    return [(value(delivery["body"]), [death(entry) for entry in delivery["headers"]["x-death"]]) for delivery in deliveries]


def without_times(steps, since):
    """The steps with the time of every death taken out, after a look at it."""

    def check(moment):
        assert since <= int(moment[0]) <= time.time(), f"died at {moment[0]}, the program ran since {since}"
        return "now"

    def strip(node):
        if isinstance(node, list):
            return [strip(member) for member in node]
        if isinstance(node, dict):
            return {key: take(member) if key == "time" else strip(member) for key, member in node.items()}
        return node

    def take(moment):  # a leaf, or with amqplib a table
        if isinstance(moment, dict):
            return {key: take(member) for key, member in moment.items()}
        return re.sub(r"\d{10}", check, moment)

    return strip(steps)


def each_dead_letter(change, steps):
    return steps | {name: {"deliveries": [change(delivery) for delivery in steps[name]["deliveries"]]} for name in DEATHS}


def as_stated(delivery):
    """What both ways show alike of a dead letter: the proxy's is a new message, without what 4.x counted of failed deliveries (3.6)."""
    headers = {name: leaf for name, leaf in delivery["headers"].items() if name not in ("x-acquired-count", "x-delivery-count")}
    return delivery | {"headers": headers, "redelivered": "?"}


def dead_lettered(proxy, vhost):
    """How many dead letters of a vhost the proxy brought to their target, by queue and reason."""
    found = re.findall(
        rf'^dlx_proxy_messages_dead_lettered_total{{vhost="{vhost}",queue="(.*)",reason="(.*)",outcome="confirmed"}} (\d+)',
        proxy.get("/metrics")[1], re.MULTILINE)
    return {(queue, reason): int(count) for queue, reason, count in found}


def is_without_clients(proxy):
    return re.search(r"^dlx_proxy_connections_open 0$", proxy.get("/metrics")[1], re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_a_library_shows_the_same(way, library, kind):
    vhost = f"languages-{library.name}-{kind}"
    since = int(time.time())
    (direct, said), (proxied, said_proxied) = (library.steps(url, kind) for url in way.urls(vhost))
    for steps in (direct, proxied):
        assert list(steps) == STEPS
        assert {name: deaths(steps[name]["deliveries"]) for name in DEATHS} == DEATHS
    direct, proxied = (each_dead_letter(as_stated, steps) for steps in (direct, proxied))
    if server := proxied["connect"].get("server"):
        assert value(server.pop("dlx_proxy")).count(".") == 2, "the version"
    assert without_times(proxied, since) == without_times(direct, since)
    assert said_proxied == said
    # A client may see a dead letter before its confirm is counted.
    until(lambda: dead_lettered(way.proxy, vhost) == TAKEN_OVER, lambda: f"the proxy had a hand in {dead_lettered(way.proxy, vhost)}")
    until(lambda: is_without_clients(way.proxy), "the connection is closed on both legs")
