"""A queue of the proxy's own that is dead, silent, deleted or bounded by a policy: `/readyz`, the metric and the log say so within half a minute,
and that it is well again, without anybody's help."""

import re

import pytest

from lab import until
from own import INTAKE, PARKED, own  # noqa: F401
from test_known import management

pytestmark = [pytest.mark.once, pytest.mark.proxied]

DELAYED = "own.delay.300000"
LOUD = 30
"""Seconds until it has to be said; on a machine that is slow, somewhat later is no fault of the proxy's."""
GRACE = 30


def in_the_node(own, queue, program):
    """Erlang about a quorum queue: Q, its server P, the name of that."""
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{own.via.vhost}">>, queue, <<"{queue}">>}}), P = amqqueue:get_pid(Q)'
    return own.via.broker.eval(f"{found}, {program}.")


def suspend(own, queue):
    in_the_node(own, queue, "sys:suspend(element(1, P))")


def resume(own, queue):
    in_the_node(own, queue, "sys:resume(element(1, P))")


def stop(own, queue):
    in_the_node(own, queue, "ra:stop_server(quorum_queues, P)")


def start(own, queue):
    in_the_node(own, queue, "ra:restart_server(quorum_queues, P)")


def up(own, queue):
    """What the metric says of it, if it says something."""
    series = f'dlx_proxy_own_queue_up{{vhost="{own.via.vhost}",queue="{queue}"}} '
    found = [line for line in own.proxy.get("/metrics")[1].splitlines() if line.startswith(series)]
    return int(found[0].split()[-1]) if found else None


def all_well(own, *queues):
    until(lambda: all(up(own, queue) == 1 for queue in queues) and own.proxy.is_ready(), lambda: own.proxy.get("/readyz")[1] + own.proxy.text())


def loud(own, troubles):
    """Waits until `/readyz` and the metric name each with these words."""

    def heard():
        status, said = own.proxy.get("/readyz")
        lines = said.splitlines()
        named = all(any(f"queue {queue} of vhost {own.via.vhost} {words}" in line for line in lines) for queue, words in troubles.items())
        return status == 503 and named and all(up(own, queue) == 0 for queue in troubles)

    until(heard, lambda: own.proxy.get("/readyz")[1] + own.proxy.text(), deadline=LOUD + GRACE, pause=0.2)
    for queue in troubles:
        assert f"queue={queue}" in own.proxy.text()


@pytest.fixture
def watched(own):
    """A proxy of a vhost of its settings, whose queues are all known to be well."""
    own.restart(vhosts=own.via.vhost)
    queue = own.queue("work", x_delayed_retry_min=300_000)
    own.publish(queue)
    own.channel.basic_nack(own.get(queue)[0].delivery_tag, requeue=True)
    all_well(own, INTAKE, PARKED, DELAYED)
    return own


def test_some_that_are_dead_and_some_that_are_silent(watched):
    """The parking queue has no process, which the broker answers by the end of the connection; the others have one that stands still."""
    stop(watched, PARKED)
    suspend(watched, INTAKE)
    suspend(watched, DELAYED)
    try:
        loud(watched, {PARKED: "is dead", INTAKE: "does not answer", DELAYED: "does not answer"})
    finally:
        resume(watched, DELAYED)
        resume(watched, INTAKE)
        start(watched, PARKED)
    all_well(watched, PARKED, INTAKE, DELAYED)


def test_an_intake_queue_that_is_dead_and_a_parking_queue_without_a_majority(watched):
    """Of two members one is on a node that is not there."""
    in_the_node(watched, PARKED, "catch ra:add_member(P, {element(1, P), 'ghost@localhost'}, 500)")
    stop(watched, INTAKE)
    try:
        loud(watched, {INTAKE: "is dead", PARKED: "does not answer"})
    finally:
        start(watched, INTAKE)
        # 3.x wants the name of the queue, 4.x the queue.
        books = ", ".join(f'catch rabbit_amqqueue:internal_delete({it}, <<"a test">>)' for it in ("Q", "amqqueue:get_name(Q)"))
        in_the_node(watched, PARKED, f"ra:force_delete_server(quorum_queues, P), {books}, ok")
    all_well(watched, INTAKE, PARKED)


def is_made_again(own):
    """The parking queue: nobody consumes it, so the broker tells nobody that it is gone."""
    with own.via.direct.channel() as channel:
        channel.queue_delete(PARKED)
    until(lambda: PARKED in own.via.broker.queues(own.via.vhost), own.proxy.text, pause=0.2)
    all_well(own, INTAKE, PARKED)
    assert re.search(f"somebody deleted a queue .*queue={PARKED}", own.proxy.text())


def test_one_that_is_deleted_is_made_again(watched):
    is_made_again(watched)


@pytest.mark.parametrize("own", ["classic"], indirect=True)
def test_classic_ones(own):
    own.restart(vhosts=own.via.vhost)
    all_well(own, INTAKE, PARKED)
    is_made_again(own)
    in_the_node(own, PARKED, "sys:suspend(P)")
    try:
        loud(own, {PARKED: "does not answer"})
    finally:
        in_the_node(own, PARKED, "sys:resume(P)")
    all_well(own, PARKED)


def test_one_that_a_policy_bounds(own):
    own.restart(vhosts=own.via.vhost, management_url=management(own.via))
    all_well(own, INTAKE, PARKED)
    broker, vhost = own.via.broker, own.via.vhost
    broker.set_policy(vhost, "everything-expires", ".*", {"message-ttl": 60_000}, apply_to="all")
    try:
        loud(own, {PARKED: "loses messages by policy everything-expires"})
        broker.set_policy(vhost, "own-of-the-proxy", "^own", {"max-length": 2_000_000_000}, priority=999)
        all_well(own, PARKED)
    finally:
        for policy in ("everything-expires", "own-of-the-proxy"):
            broker.clear_policy(vhost, policy)
