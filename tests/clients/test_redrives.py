"""Dead letters that are sent back, or removed, over HTTP: nothing is lost, nothing comes twice, and only who may moves anything."""

import json
import urllib.parse

import pytest

from lab import until
from test_dead_letters import KINDS, ask, die, look, path

pytestmark = [pytest.mark.once, pytest.mark.proxied]


def redrives(via, rest=""):
    return f"/api/v1/vhosts/{urllib.parse.quote(via.vhost, safe='')}/redrives{rest}"


def order(scene, queue, what="redrives", status=202, user=None, **parameters):
    """Begins it: the answer."""
    pairs = [(name.replace("_", "-"), value) for name, value in parameters.items()]
    place = path(scene.via, queue).removesuffix("dead-letters") + what
    said, answer, _ = ask(scene.via, place, user, parameters=pairs, method="POST")
    assert said == status, answer
    return answer


def ended(scene, begun):
    """How it ended."""
    def state():
        status, answer, _ = ask(scene.via, redrives(scene.via, f"/{begun['id']}"))
        assert status == 200, answer
        return answer

    return until(lambda: (now := state())["state"] not in ("running", "waiting", "paused") and now, lambda: f"the end of {state()}")


def numbers(scene, queue):
    """The messages in a queue, by their bodies, in its order (from 4.3 on quorum queues have priorities, too)."""
    return [json.loads(letter["preview"])["number"] for letter in look(scene, queue)["dead-letters"]]


def taken(scene, queue, count):
    """What a client of the proxy reads: exchange, key, redelivered, headers, body. And acks."""
    got, channel = [], scene.channel
    for _ in range(count):
        until(lambda: (one := channel.basic_get(queue, auto_ack=True))[0] is not None and got.append(one) is None, f"message {len(got) + 1} of {count} in {queue}")
    return got


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
def test_what_died_goes_back_to_its_queue(scene, kind):
    arguments = dict(KINDS[kind])
    if scene.via.broker.version.startswith("3."):
        arguments.pop("limit", None)
    dead = scene.queue("dead", **arguments)
    orders, slow = die(scene, (dead,), 6)
    before = numbers(scene, dead)
    done = ended(scene, order(scene, dead, source=orders))
    assert (done["state"], done["ready"], done["seen"], done["gone"], done["stay"]) == ("completed", 6, 6, 3, {}), done
    assert numbers(scene, dead) == [number for number in before if number % 2], "the others are in their places"
    went = [number for number in before if number % 2 == 0]
    for number, (method, properties, body) in zip(went, taken(scene, orders, 3)):
        assert json.loads(body) == {"number": number}
        assert (method.exchange, method.routing_key, method.redelivered) == ("", orders, False)
        assert properties.headers["tenant"] == number % 3
        assert properties.message_id == f"m{number}"


def test_what_dies_again_says_that_it_was_redriven(scene):
    dead = scene.queue("dead", kind="classic")
    orders, _ = die(scene, (dead,), 1)
    for times in (1, 2):
        assert ended(scene, order(scene, dead))["gone"] == 1
        until(lambda: scene.depth(orders) == 1, "it is back")
        scene.kill(orders, "rejected")
        until(lambda: scene.depth(dead) == 1, "it died again")
        (letter,) = look(scene, dead)["dead-letters"]
        assert (letter["redriven"], letter["deaths"], letter["source-queue"]) == (times, times + 1, orders), letter


def test_a_number_a_rate_and_another_queue(scene):
    dead, other = scene.queue("dead", kind="quorum"), scene.queue("other", kind="classic")
    die(scene, (dead,), 4)
    before = numbers(scene, dead)
    done = ended(scene, order(scene, dead, to_queue=other, limit=2, rate=1000, history="new"))
    assert (done["state"], done["gone"]) == ("completed", 2), done
    for number, (_, properties, body) in zip(before, taken(scene, other, 2)):
        assert json.loads(body) == {"number": number}
        assert "x-death" not in properties.headers
    assert numbers(scene, dead) == before[2:]


def test_what_no_route_takes_stays(scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 3)
    done = ended(scene, order(scene, dead, to_queue=scene.name("nobody")))
    assert (done["state"], done["gone"], done["stay"]) == ("completed", 0, {"unroutable": 3}), done
    assert len(look(scene, dead)["dead-letters"]) == 3


def test_purge(scene):
    dead = scene.queue("dead", kind="quorum")
    die(scene, (dead,), 4)
    assert order(scene, dead, "purges", status=200, reason="expired", dry_run="true")["matched"] == 2
    done = ended(scene, order(scene, dead, "purges", reason="expired"))
    assert (done["state"], done["gone"]) == ("completed", 2), done
    assert {letter["reason"] for letter in look(scene, dead)["dead-letters"]} == {"rejected"}


def test_who_may_not_moves_nothing(scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 2)
    place = path(scene.via, dead).removesuffix("dead-letters") + "redrives"
    for user, password, status in (("stranger", None, 403), ("all-rights", "wrong", 401)):
        said, answer, _ = ask(scene.via, place, user, password, method="POST")
        assert said == status, answer
    said, answer, _ = ask(scene.via, place, method="POST", header=False)
    assert (said, answer["detail"][:39]) == (403, "what changes something needs the header"), answer
    assert len(look(scene, dead)["dead-letters"]) == 2
    order(scene, dead, status=403, to_queue="dlx-proxy.intake")
    begun = order(scene, dead)
    for user, status in (("stranger", 404), ("all-rights", 200)):
        assert ask(scene.via, redrives(scene.via, f"/{begun['id']}"), user)[0] == status
