"""A queue of a cluster is made anew under its clients, who are behind two proxies, while a node or a proxy goes away."""

import subprocess
import time

import pytest
from lab import BINARY, DEADLINE, until
from load import Load
from test_nodes import counted

QUEUE = "rejected"


def altering(proxy, vhost, number):
    """The command, begun."""
    url = "http://%s:%d" % proxy.admin
    words = [BINARY, "queues", "alter", QUEUE, "--set", f"x-max-length={1_000_000 + number}", "--approve", "--url", url, "--vhost", vhost]
    login = ["--username", "guest", "--password", "guest"]
    return subprocess.Popen([*words, *login], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.every_version
def test_a_queue_is_altered_while_nodes_and_proxies_go(cluster, vhost, start):
    proxies = [start(management_url=cluster.management(2)) for _ in range(2)]
    with Load(cluster, vhost, proxies) as load:

        said = []

        def altered(number, proxy=proxies[0]):
            began = time.monotonic()
            said.append(altering(proxy, vhost, number).communicate(timeout=2 * DEADLINE)[0])
            print(f"{time.monotonic() - began:.0f} s: {said[-1]}")
            return said[-1]

        until(lambda: "Clients waited for" in altered(1), lambda: said, pause=1)
        assert cluster.arguments(vhost, QUEUE)["x-max-length"] == 1_000_001
        with load.fault():
            cluster.end(3)
            load.flows_again()
            assert "is down" in altered(2), said
            cluster.come_back(3)
        until(lambda: "Clients waited for" in altered(3), lambda: said, pause=1)
        with load.fault():
            takes_part = lambda: proxies[1].text().count("takes part")
            before = takes_part()
            under_way = altering(proxies[0], vhost, 4)
            until(lambda: takes_part() > before, "the other one takes part")
            proxies[0].process.kill()
            under_way.communicate(timeout=DEADLINE)
            load.leave(proxies[0], proxies[1])
            until(lambda: ".altering/" not in load.queues(), load.queues)
            assert cluster.arguments(vhost, QUEUE)["x-max-length"] in (1_000_003, 1_000_004)
        until(lambda: "Clients waited for" in altered(5, proxies[1]), lambda: said, deadline=180, pause=1)
        assert cluster.arguments(vhost, QUEUE)["x-max-length"] == 1_000_005
        assert not [words for client in load.clients for words in client.lost if "406" in words]
        counted(load, may_lose=["expired"])
