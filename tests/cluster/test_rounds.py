"""Anything, anywhere, in any order, again and again: DLX_TEST_ROUNDS=N. DLX_TEST_SEED=N begins with the round of that seed."""

import os
import random
import time

import pytest
from load import Load
from test_nodes import ALL, counted

ROUNDS = int(os.environ.get("DLX_TEST_ROUNDS") or 0)
FIRST = int(os.environ.get("DLX_TEST_SEED") or random.randrange(1_000_000))
FAULTS = ("ended", "killed", "paused", "alone", "no-majority", "proxy-killed", "proxy-stopped", "proxy-and-node")


def strike(cluster, fault, rng, outage, leave):
    """Breaks it and heals it."""
    node = rng.choice(ALL)
    if fault.startswith("proxy"):
        leave(rng.randrange(2), fault == "proxy-stopped")
        if fault == "proxy-and-node":
            cluster.kill(node)
        time.sleep(outage)
    elif fault == "no-majority":
        for other in rng.sample(ALL, 2):
            cluster.kill(other)
        time.sleep(outage)
    else:
        {"ended": cluster.end, "killed": cluster.kill, "paused": cluster.pause, "alone": cluster.part}[fault](node)
        time.sleep(outage)
    cluster.heal()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_round(cluster, vhost, start, seed):
    rng = random.Random(seed)
    fault, outage = FAULTS[seed % len(FAULTS)], rng.uniform(0, 12)
    order = {"upstream_order": rng.choice(["round-robin", "first"])}
    print(f"fault={fault} outage={outage:.1f} {order}")
    proxies = [start(**order), start(**order)]
    with Load(cluster, vhost, proxies) as load:

        def leave(number, orderly):
            """One proxy goes, and another comes in its place."""
            gone = proxies[number]
            if orderly:
                gone.stop()
            else:
                gone.process.kill()
                gone.process.wait()
            proxies[number] = start(**order)
            load.leave(gone, proxies[number])

        with load.fault():
            strike(cluster, fault, rng, outage, leave)
        counted(load, may_lose=["expired"])
