"""Redrives whose messages keep their own routing keys, while something is wrong: in an alarm, to a full queue, and with a broker that is stopped."""

import contextlib
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from lab import Alone, Proxy, node_like, rabbit, until
from scene import Scene
from test_dead_letters import ask, command
from test_redrives import ended, numbers, order, redrives

pytestmark = [pytest.mark.once, pytest.mark.proxied, pytest.mark.every_broker]

COUNT = 40


def prepared(scene, count=COUNT, **target):
    """A queue of numbered dead letters, each with a key of its own, and an exchange that leads all of them to another queue."""
    dead, arrived = scene.queue("dead", kind="quorum"), scene.queue("arrived", kind="quorum", **target)
    source, exchange = scene.exchange("source", "fanout"), scene.exchange("to", "topic")
    scene.bind(dead, source)
    scene.bind(arrived, exchange, "#")
    for number in range(count):
        scene.publish(source, f"k{number}", b'{"number": %d}' % number)
    until(lambda: scene.depth(dead) == count, "all are there")
    return dead, arrived, exchange


def under_way(scene):
    """The same, and a redrive that has moved some."""
    dead, arrived, exchange = prepared(scene)
    begun = order(scene, dead, to_exchange=exchange, rate=20)
    until(lambda: scene.depth(arrived) >= 3, "some have gone")
    return dead, arrived, exchange, begun


def shown(scene, begun):
    status, answer, _ = ask(scene.via, redrives(scene.via, f"/{begun['id']}"))
    assert status == 200, answer
    return answer


def is_so(scene, begun, **expected):
    """Once it shows that."""
    now = lambda: shown(scene, begun)
    until(lambda: expected.items() <= now().items(), lambda: f"{expected} of {now()}")


def cancel(scene, begun):
    status, answer, _ = ask(scene.via, redrives(scene.via, f"/{begun['id']}/cancel"), method="POST")
    assert status == 200, answer


def read(via, queue):
    """How often each number is in the queue."""
    found = Counter()
    with contextlib.closing(via.connect(direct=True)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0]:
            found[json.loads(got[2])["number"]] += 1
    return found


def test_in_an_alarm_it_waits_and_then_goes_on(scene):
    dead, arrived, _, begun = under_way(scene)
    with scene.via.broker.under_memory_alarm():
        is_so(scene, begun, state="waiting", cause="blocked")
        code, printed, _ = command(scene, "show", str(begun["id"]), group="dead-letters redrives")
        assert code == 0 and ["cause", "blocked"] in [line.split() for line in printed.splitlines()], printed
    done = ended(scene, begun)
    assert (done["state"], done["cause"], done["seen"], done["gone"], done["stay"]) == ("completed", None, COUNT, COUNT, {}), done
    found = read(scene.via, arrived)
    assert (set(found), scene.depth(dead)) == (set(range(COUNT)), 0)


def test_who_cancels_in_an_alarm_ends_it_and_nothing_is_lost(scene):
    dead, arrived, _, begun = under_way(scene)
    with scene.via.broker.under_memory_alarm():
        is_so(scene, begun, state="waiting", cause="blocked")
        cancel(scene, begun)
        done = ended(scene, begun)
    assert (done["state"], done["cause"]) == ("cancelled", None), done
    assert 3 <= done["gone"] < COUNT, done
    until(lambda: scene.depth(dead) + scene.depth(arrived) >= COUNT, "what was held is back")
    went, stayed = read(scene.via, arrived), read(scene.via, dead)
    assert set(went) | set(stayed) == set(range(COUNT)), done
    in_doubt = done["stay"].get("unconfirmed", 0)
    assert done["gone"] <= len(went) <= done["gone"] + in_doubt, (done, went)
    twice = set(went) & set(stayed)
    assert not twice or any("may" in note for note in done["notes"]), (twice, done)


def test_a_full_target_refuses_and_the_rest_stays(scene):
    dead, arrived, exchange = prepared(scene, count=12, max_length=5, overflow="reject-publish")
    done = ended(scene, order(scene, dead, to_exchange=exchange, rate=20))
    went, stayed = read(scene.via, arrived), numbers(scene, dead)
    assert (done["state"], done["seen"], done["gone"]) == ("completed", 12, len(went)), done
    assert done["stay"] == {"nacked": 12 - len(went)} and len(went) < 12, done
    assert sorted([*went, *stayed]) == list(range(12)) and stayed == sorted(stayed)


@pytest.fixture
def own_node(via, tmp_path):
    """A node of the test's own, and a proxy in front of it."""
    if not via.broker.folder:
        pytest.skip("nobody knows how to start a node")
    with node_like(via.broker, "redrives") as broker:
        proxy = Proxy(broker.url, "full", tmp_path / "log")
        try:
            proxy.wait_ready()
            yield SimpleNamespace(broker=broker, proxy=proxy)
        finally:
            proxy.stop()


def test_a_broker_that_is_stopped_ends_it_and_nothing_is_lost(own_node):
    via = Alone(own_node.broker, own_node.proxy)
    scene = Scene(via, "stopped")
    dead, arrived, exchange, begun = under_way(scene)
    rabbit("stop", own_node.broker.folder, "--keep")
    # The broker is away, and nobody can be let in: what is known of the redrive is asked for afterwards.
    rabbit("start", own_node.broker.folder)
    until(own_node.proxy.is_ready, own_node.proxy.text)
    done = ended(scene, begun)
    assert done["state"] == "failed" and done["cause"], done
    scene = Scene(via, "stopped")
    until(lambda: scene.depth(dead) + scene.depth(arrived) >= COUNT, "all are somewhere")
    went = scene.depth(arrived)
    assert done["gone"] <= went, done
    again = ended(scene, order(scene, dead, to_exchange=exchange))
    assert again["state"] == "completed" and again["stay"] == {}, again
    found = read(via, arrived)
    assert (set(found), scene.depth(dead)) == (set(range(COUNT)), 0)
