"""6: what goes round by named exchanges. The proxy does not know the queues behind one: there a cycle may end one lap later than natively, and what
everybody else sees of it is the same. (Through the default exchange: tests/differential/scenarios/cycles.txt.)"""

import time

import pytest

from scene import PARKED

TTL = 50
"""Of each queue in a circle, in milliseconds."""


@pytest.mark.parametrize("half_native", [False, True], ids=["ours", "half native"])
def test_two_queues_by_named_exchanges(own, half_native):
    """6.1, 6.4: a -> b -> a. 3.x does not tell how it came into a queue where it died before, so there the proxy parks what seems to have gone round
    unseen by the broker. 4.x forgets what died before a queue that was declared past the proxy."""
    exchange, a, b = own.exchange("exchange", "direct"), own.name("a"), own.name("b")
    own.queue("a", dlx=exchange, dlk="to b", ttl=TTL)
    (own.made if half_native else own.queue)("b", dlx=exchange, dlk="to a", ttl=TTL)
    sinks = [own.queue("sink-a"), own.queue("sink-b")]
    for queue, key in ((a, "to a"), (b, "to b"), (sinks[0], "to a"), (sinks[1], "to b")):
        own.bind(queue, exchange, key)
    for entrance, expected in (("", [1, 1]), (exchange, [2, 1])):
        own.publish(entrance, "to a" if entrance else a)
        for sink, count in zip(sinks, expected):
            own.has(sink, count)
        time.sleep(1)
        assert [len(own.all_of(sink, 0)) for sink in sinks] == expected, "and no second lap"
    assert [own.depth(queue) for queue in (a, b)] == [0, 0]
    assert own.depth(PARKED) == (0 if own.via.broker.is_4x or half_native else 2)


def test_a_client_that_retries_by_hand_past_the_proxy(own):
    """6.4: it takes the dead letter and publishes it into the same queue again, with all its headers: as often as it likes."""
    dlx, dead = own.exchange("dlx"), own.queue("dead")
    queue = own.queue("queue", dlx=dlx, dlk="dead", ttl=20)
    own.bind(dead, dlx)
    own.publish("", queue, message_id="an id")
    with own.via.direct.channel() as channel:
        for _ in range(5):
            _, properties, body = own.get(dead, channel)
            assert properties.message_id == "an id"
            channel.basic_publish("", queue, body, properties)
        own.get(dead, channel)
