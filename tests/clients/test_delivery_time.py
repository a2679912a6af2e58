"""The header `x-opt-delivery-time`: until then a quorum queue of RabbitMQ 4.4 holds a message. In the proxy's own queues it has another name, on
every version; and no target gets one that is too far ahead."""

import json
import time
from types import SimpleNamespace

import pika
import pytest

from lab import until
from own import PARKED, PREFIX, own  # noqa: F401, a fixture
from test_files import export, run
from test_parked import make
from test_redrives import ended, order

pytestmark = [pytest.mark.once, pytest.mark.proxied]

NAME, ASIDE = "x-opt-delivery-time", "x-dlx-proxy-deliver"
AHEAD = int(time.time() * 1000) + 3_600_000
YEAR_3000 = 32_503_680_000_000


def times(properties):
    return {name: value for name, value in properties.headers.items() if name in (NAME, ASIDE)}


def got(channel, queue):
    return until(lambda: next((got for got in [channel.basic_get(queue)] if got[0]), None), f"a message in {queue}")


def as_broker_has_it(own, queue):
    """The headers of that kind in the only message of the queue, which stays there."""
    with own.via.direct.channel() as channel:
        return times(got(channel, queue)[1])


def publish(own, queue, at):
    own.publish(queue, headers={NAME: at, "n": 1})


def test_while_it_is_away_for_a_retry(own):
    source, away = own.queue("source", x_delayed_retry_min=600_000), f"{PREFIX}.delay.600000"
    publish(own, source, AHEAD)
    method, properties, _ = own.get(source)
    assert times(properties) == {NAME: AHEAD}
    own.channel.basic_nack(method.delivery_tag, requeue=True)
    # Not got from before it runs: 3.10 would close the connection.
    until(lambda: away in own.via.broker.queues(own.via.vhost) and own.via.broker.messages(own.via.vhost, away) == 1, "a delay queue")
    with own.via.direct.channel() as channel:
        method, properties, _ = got(channel, away)
        assert times(properties) == {ASIDE: AHEAD}
        channel.basic_reject(method.delivery_tag, requeue=False)  # so it is due now
    until(lambda: own.depth(source) == 1, "it is back")
    assert as_broker_has_it(own, source) == {NAME: AHEAD}, "in its own queue it acts"
    _, properties, _ = own.get(source)
    assert times(properties) == {NAME: AHEAD}


def test_while_it_is_parked(own):
    """And for all ways out: by itself, to a queue in the name of a user, through a file."""
    source = own.queue("source", x_dead_letter_exchange="own-later")
    for _ in range(2):
        publish(own, source, AHEAD)
        own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    until(lambda: own.depth(PARKED) == 2, "both are parked")
    assert as_broker_has_it(own, PARKED) == {ASIDE: AHEAD}

    scene = SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, vhost=own.via.vhost, proxy=own.proxy))
    lines, _ = export(scene, PARKED, "--header", f"{NAME}={AHEAD}")
    for line in lines.splitlines():
        read = json.loads(line)
        assert {header["name"]: header["value"] for header in read["headers"]}[NAME] == AHEAD
        assert NAME.encode().hex() in read["raw-properties"]
    assert len(lines.splitlines()) == 2
    imported, redriven = own.queue("imported"), own.queue("redriven")
    assert run(scene, lines, "--queue", imported)[0] == 0
    done = ended(scene, order(scene, PARKED, to_queue=redriven, limit=1))
    assert done["gone"] == 1, done
    for queue in imported, redriven:
        assert as_broker_has_it(own, queue) == {NAME: AHEAD}

    sink = make(own)
    own.restart(parked_retry="500ms")
    until(lambda: own.depth(sink) == 1, "it goes by itself")
    assert as_broker_has_it(own, sink) == {NAME: AHEAD}


@pytest.mark.parametrize("at", [YEAR_3000, AHEAD * 1000])
def test_one_that_is_too_far_ahead_goes_nowhere(own, at):
    """By a reject, by expiry, back from a retry, through a file: the message goes without it."""
    dead = own.queue("dead")
    target = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    source, brief, again = own.queue("source", **target), own.queue("brief", x_message_ttl=1, **target), own.queue("again", x_delayed_retry_min=1)
    for queue in source, brief, again:
        publish(own, queue, at)
    own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    method, properties, _ = own.get(again)
    assert times(properties) == {NAME: at}
    own.channel.basic_nack(method.delivery_tag, requeue=True)
    for queue in dead, dead, again:
        _, properties, _ = own.get(queue)
        assert times(properties) == {} and properties.headers["n"] == 1
    metric = lambda: own.proxy.get("/metrics")[1]
    assert f'dlx_proxy_limits_met_total{{limit="{NAME}"}} 3' in metric()
    assert "a message goes on without its x-opt-delivery-time" in own.proxy.text()

    scene = SimpleNamespace(via=SimpleNamespace(broker=own.via.broker, vhost=own.via.vhost, proxy=own.proxy))
    late, imported = own.queue("late"), own.queue("imported")
    publish(own, late, at)
    until(lambda: own.depth(late) == 1, "it is there")
    lines, _ = export(scene, late)
    assert run(scene, lines, "--queue", imported)[0] == 0
    assert as_broker_has_it(own, imported) == {}
    assert f'dlx_proxy_limits_met_total{{limit="{NAME}"}} 4' in metric()
