"""Several proxies before one cluster: what one leaves, another takes over."""

import re

import pytest
from lab import until
from load import CUT, QUORUM, Load
from test_nodes import counted


def consuming(proxy):
    """Whether it has a consumer of the intake queue; the broker chooses the active one."""
    return "dlx_proxy_intake_consuming{" in (text := proxy.get("/metrics")[1]) and re.search(r"^dlx_proxy_intake_consuming\{.*\} 1$", text, re.M)


def through_intake(load, deadline=20):
    """What expires from now on reaches its target."""
    before = load.confirmed("expired")

    def more():
        load.look("expired")
        return len(load.seen["expired"].keys() - before) > 10

    until(more, "the intake queue is read", deadline=deadline)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_the_active_intake_moves(cluster, vhost, start, end):
    proxies = [start(), start(), start()]
    for proxy in proxies:
        until(lambda: consuming(proxy), "it consumes")
    # The clients are those of the last one, which stays.
    with Load(cluster, vhost, proxies[2:]) as load:
        through_intake(load)
        # The first to come is the active one.
        for proxy in proxies[:2]:
            if end == "killed":
                proxy.process.kill()
                proxy.process.wait()
            else:
                proxy.stop()
            through_intake(load)
        counted(load)


@pytest.mark.every_version
def test_the_active_intake_moves_with_its_node(cluster, vhost, start):
    """Both proxies prefer node 1, which is killed. 4.3 waits for a consumer whose node is gone, a minute by default."""
    if not cluster.version.startswith("3."):
        cluster.ctl(2, "set_policy", "-p", vhost, "--priority", "999", "dlx-proxy", "^dlx-proxy", '{"consumer-disconnected-timeout":5000}')
    proxies = [start(upstream_order="first"), start(upstream_order="first")]
    # The clients stay where they are, behind a third proxy: it began to consume last, so it is not the active one.
    with Load(cluster, vhost, [start(nodes=(2, 3))], home=2) as load:
        through_intake(load)
        with load.fault():
            cluster.kill(1)
            load.flows()
            through_intake(load)
            for proxy in proxies:
                until(proxy.is_ready, "its links are up")
            cluster.come_back(1)
        counted(load, may_lose=["expired"])


@pytest.mark.every_version
def test_a_classic_intake_queue_waits_for_its_node(cluster, vhost, start):
    """It lives on one node. Meanwhile rejects go on, what expires at most once has nowhere to go, and the proxy says what it waits for."""
    proxy = start(nodes=(1,), intake_queue_type="classic")
    other = start(nodes=(2, 3), intake_queue_type="classic")
    with Load(cluster, vhost, [other]) as load:
        through_intake(load)
        with load.fault():
            cluster.end(1)
            rejected = len(load.confirmed("rejected"))
            until(lambda: len(load.confirmed("rejected")) > rejected + 50, "rejects go on")
            until(lambda: "down or inaccessible" in other.text() or "stopped by supervisor" in other.text(), "it says what it waits for")
            cluster.come_back(1)
            through_intake(load)
        counted(load, may_lose=["expired"])
    assert "panicked" not in proxy.text()
