"""A queue that is deleted with its last consumer is still there when somebody has looked into it, or moved messages out of it."""

import pytest

from lab import until
from test_dead_letters import ask, command, die, look, path
from test_redrives import ended, numbers, order

pytestmark = [pytest.mark.once, pytest.mark.proxied]


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_without_consumers_stays(scene, durable):
    if not durable and scene.via.broker.is_from(4, 3):
        pytest.skip("from 4.3 on there are no such queues")
    dead, other = scene.queue("dead", durable=durable, auto_delete=True), scene.queue("other", kind="classic")
    die(scene, (dead,), 40)
    assert numbers(scene, dead) == list(range(40))
    assert sum(group["messages"] for group in look(scene, dead, "/groups")["groups"]) == 40
    code, lines, said = command(scene, "export", "--queue", dead)
    assert (code, len(lines.splitlines()), said) == (0, 40, "")
    done = ended(scene, order(scene, dead, to_queue=other, limit=3))
    assert (done["state"], done["gone"]) == ("completed", 3), done
    assert (numbers(scene, dead), scene.depth(other)) == (list(range(3, 40)), 3)
    done = ended(scene, order(scene, dead, "purges", reason="expired"))
    assert (done["state"], done["gone"]) == ("completed", 19), done
    assert numbers(scene, dead) == list(range(4, 40, 2))
    done = ended(scene, order(scene, dead, to_queue=other))
    assert (done["state"], done["gone"], done["stay"]) == ("completed", 18, {}), done
    assert (scene.depth(dead), scene.depth(other)) == (0, 21)


def test_whoever_may_only_read_it_leaves_it_there(scene):
    """Such a user may not ask the broker whether it would be deleted."""
    via, dead = scene.via, scene.queue("dead", auto_delete=True)
    for number in range(3):
        scene.publish("", dead, b'{"number": %d}' % number)
    until(lambda: scene.depth(dead) == 3, "all messages")
    via.broker.make((), [("reader", "secret")], [("reader", via.vhost, "^$", "^$", ".*")])
    try:
        status, answer, _ = ask(via, path(via, dead), "reader")
        assert (status, len(answer["dead-letters"])) == (200, 3), answer
    finally:
        via.broker.unmake((), ["reader"])
    until(lambda: scene.depth(dead) == 3, "all are back")


def test_with_a_consumer_it_goes_when_that_does(scene):
    """It is consumed, as other queues are, and its own consumer decides."""
    dead = scene.queue("dead", auto_delete=True)
    consumer = scene.connection.channel()
    consumer.basic_qos(prefetch_count=1)
    consumer.basic_consume(dead, lambda *_: None)
    for number in range(3):
        scene.publish("", dead, b'{"number": %d}' % number)
    until(lambda: scene.depth(dead) == 2, "one is out")
    assert numbers(scene, dead) == [1, 2]
    until(lambda: scene.depth(dead) == 2, "it is there")
    consumer.close()
