"""What one user of the admin port leaves to the others: looks and redrives have shares, looks into one queue take turns, and rights are asked for by few
connections."""

import base64
import contextlib
import json
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cable import Cable
from lab import DEADLINE, until
from own import own  # noqa: F401, a fixture
from test_dead_letters import ask, command, path
from test_known import die
from test_redrives import ended, order, redrives

pytestmark = [pytest.mark.once, pytest.mark.proxied]

USER = "all-rights"


def scene_of(own):
    """For helpers that ask the proxy of a test."""
    return SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, vhost=own.via.vhost, proxy=own.proxy))


def filled(own, label, count, **arguments):
    queue = own.queue(label, **arguments)
    for number in range(count):
        own.publish(queue, b"%d" % number)
    until(lambda: own.depth(queue) == count, "all messages")
    return queue


def paused(scene, queue, user=None):
    """A purge that holds what is left of a queue."""
    begun = order(scene, queue, "purges", user=user, rate=1)
    said, answer, _ = ask(scene.via, redrives(scene.via, f"/{begun['id']}/pause"), user, method="POST")
    assert (said, answer["state"]) == (200, "paused"), answer
    return begun


def cancelled(scene, begun):
    """How many messages have gone."""
    assert ask(scene.via, redrives(scene.via, f"/{begun['id']}/cancel"), method="POST")[0] == 200
    done = ended(scene, begun)
    assert done["state"] == "cancelled", done
    return done["gone"]


def test_who_pauses_all_redrives_leaves_places_for_others(own):
    own.restart()
    scene = scene_of(own)
    mine = [filled(own, f"mine-{number}", 100) for number in range(5)]
    one, two = mine[0], filled(own, "two", 100)
    begun = [paused(scene, queue, USER) for queue in mine]
    refused = order(scene, two, "purges", status=503, user=USER)
    assert "half of them are this user's" in refused["detail"], refused
    assert 'dlx_proxy_limits_met_total{limit="max-redrives"} 1\n' in own.proxy.get("/metrics")[1]
    assert ended(scene, order(scene, two, "purges"))["gone"] == 100, "another user has a place"
    cancelled(scene, begun[0])
    assert ended(scene, order(scene, one, "purges", user=USER))["state"] == "completed"


def test_who_looks_for_long_leaves_places_for_others(own):
    own.restart(max_looks=2)
    scene, queue, other = scene_of(own), own.queue("alone", x_single_active_consumer=True), filled(own, "other", 3)
    with own.via.direct.channel() as active, ThreadPoolExecutor() as threads:
        active.basic_qos(prefetch_count=1)
        tag = active.basic_consume(queue, lambda *_: None)
        for _ in range(2):
            own.publish(queue)
        until(lambda: own.depth(queue) == 1, "one of two is out")
        looks = threads.submit(ask, scene.via, path(scene.via, queue), USER)
        consumers = lambda: active.queue_declare(queue, passive=True).method.consumer_count
        until(lambda: consumers() == 2, "the look gets nothing")
        said, answer, _ = ask(scene.via, path(scene.via, other), USER)
        assert said == 503 and "looks of this user" in answer["detail"], answer
        said, answer, _ = ask(scene.via, path(scene.via, other))
        assert (said, answer["looked-at"]) == (200, 3), answer
        said, answer, _ = ask(scene.via, path(scene.via, queue))
        assert said == 503 and "another look into this queue" in answer["detail"], answer
        active.basic_cancel(tag)
        assert looks.result()[0] == 200
    said, answer, _ = ask(scene.via, path(scene.via, other), USER)
    assert (said, answer["looked-at"]) == (200, 3), answer


def test_two_exports_of_a_queue_have_all_of_it(own):
    queue = filled(own, "dead", 300)
    with ThreadPoolExecutor() as threads:
        exports = [threads.submit(command, scene_of(own), "export", "--queue", queue) for _ in range(2)]
        done = [export.result() for export in exports]
    assert [(code, len(lines.splitlines()), said) for code, lines, said in done] == [(0, 300, "")] * 2


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_others_hold_is_missed_by_a_word_and_an_exit_code(own, kind):
    scene, queue = scene_of(own), filled(own, "dead", 20, x_queue_type=kind)
    with own.via.direct.channel() as other:
        other.basic_qos(prefetch_count=5)
        other.basic_consume(queue, lambda *_: None)
        until(lambda: own.depth(queue) == 15, "somebody holds five")
        said, answer, _ = ask(scene.via, path(scene.via, queue))
        assert (said, answer["stopped"], answer["looked-at"]) == (200, "others", 15), answer
        held = "dlx-proxy: another consumer takes messages from this queue: what it holds is not shown"
        for what in ("export", "list", "groups"):
            code, _, said = command(scene, what, "--queue", queue)
            assert code == 3 and held in said.splitlines(), (what, code, said)
        code, lines, _ = command(scene, "export", "--queue", queue, "--limit", "3")
        assert (code, len(lines.splitlines())) == (0, 3), "it was asked for so many"
    until(lambda: own.depth(queue) == 20, "all are back")
    begun = paused(scene, queue)
    until(lambda: own.depth(queue) == 0, "it holds all of them")
    code, lines, said = command(scene, "export", "--queue", queue)
    assert (code, lines) == (3, "") and held in said.splitlines(), (code, said)
    left = 20 - cancelled(scene, begun)
    until(lambda: own.depth(queue) == left, "all are back")
    code, lines, said = command(scene, "export", "--queue", queue)
    assert (code, len(lines.splitlines())) == (0, left), said


def page(own, rest="", **headers):
    """An open answer of the admin port."""
    login = own.via.broker.parameters.credentials
    request = urllib.request.Request("http://%s:%d%s" % (*own.proxy.admin, rest), headers=headers)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode())
    return contextlib.closing(urllib.request.urlopen(request, timeout=DEADLINE))


def test_a_page_about_many_queues_asks_the_broker_by_few_connections(own):
    cable = Cable(own.via.broker.address)
    own.restart(address=cable.address)
    sources = {}
    for number in range(20):
        dead = own.queue(f"dead{number}")
        sources[own.queue(f"source{number}", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)] = dead

    def each_has_had(letters):
        for source, dead in sources.items():
            die(own, source, 1)
            until(lambda: own.depth(dead) == letters, "it died")

    each_has_had(1)
    before = cable.connections
    vhost = urllib.parse.quote(own.via.vhost, safe="")
    with page(own, f"/vhosts/{vhost}") as answer:
        text = answer.read().decode()
    assert all(queue in text for queue in own.queues), text
    assert cable.connections - before <= 4
    own.restart(address=cable.address)  # It remembers no answer.
    each_has_had(2)
    # One connection for the login, one for each batch of questions.
    before = cable.connections
    with page(own, f"/api/v1/vhosts/{vhost}/deaths?after=0", Accept="text/event-stream") as events:
        seen = {json.loads(line[6:])["queue"] for line in _lines(events, len(sources))}
    assert seen == sources.keys()
    assert cable.connections - before <= 4


def _lines(events, count):
    """So many dead letters of a live answer."""
    while count:
        line = events.readline()
        if line.startswith(b'data: {"number"'):
            count -= 1
            yield line
