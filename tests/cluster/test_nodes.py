"""Nodes end, die, stand still and lose each other, one after the other, under load: no reject is lost, and clients find another node by themselves."""

import re
from contextlib import contextmanager

import pytest
from lab import until
from load import Direct, Load

ALL = (1, 2, 3)
BOOKS = re.compile(r"^dlx_proxy_(?:messages_dead_lettered|dead_letters_undelivered|fallbacks|rejects_\w+|parked_\w+)_total.* [1-9]\d*$", re.M)


def counted(load, *, may_lose=()):
    """All that was confirmed is dead, perhaps twice; the broker's own move at most once may lose what expires during a fault, and nothing else."""
    load.end()
    lost = {queue: load.arrives(queue) for queue in load.sources if queue not in may_lose}
    for queue in may_lose:
        load.arrives(queue, but=load.in_faults(queue))
        lost[queue] = load.arrives(queue, deadline=5)
    print(load.cluster.version, load.summary(lost))
    if any(lost.values()):
        print(load.queues("messages", "messages_ready", "leader", "online", "state"))
        for queue, numbers in lost.items():
            print(queue, "lost, confirmed at", load.times(queue, numbers))
        print("faults", load.faults)
        for proxy in {client.proxy for client in load.clients}:
            print(proxy.address, *BOOKS.findall(proxy.get("/metrics")[1]), sep="\n")
    for queue in load.sources:
        missing = lost[queue] - load.in_faults(queue) if queue in may_lose else lost[queue]
        # The broker alone moves these, and its worker may have given up (3.10): what is still in its queue is not lost.
        waiting = load.waiting(queue) if queue == "expired-at-least-once" else 0
        assert len(missing) <= waiting, f"{queue}: {sorted(missing)[:20]} of {len(missing)}, {waiting} wait"
    # Nothing comes that nobody sent.
    for queue, seen in load.seen.items():
        assert all(number // 10_000_000 < len(load.publishers) for number in seen)


def is_rabbitmqs_own(cut):
    """RabbitMQ itself answers 541, on any node, where the leader of a queue ends in the middle of a call (3.10: what expires as its node goes finds no
    exchanges any more, `rabbit_quorum_queue:dead_letter_publish`). And 3.10 says `basic.consume-ok` before it has a consumer: where the leader ends
    just then it begins again, and says so twice (`rabbit_quorum_queue:consume`), which pika takes for an error of its own; once in 16 times without a proxy."""
    return "(541)" in cut or "_CallbackResult was already set" in cut


def only_nodes_cut(load, words="", *, more=0, refused=False):
    """Each client was cut off once for each node that went, and `more` times, most in these words; nobody was refused, as a client waits for another
    node, or for a proxy. Clients that go straight to the nodes (`refused`) are told the same, but find a node away now and then.

    A node that is stopped resets its connections behind its last words: a client that writes just then hears of the reset first (4.3.6: 3 of 240
    without a proxy, 1 of 240 with one). With TLS Python calls that SSLEOFError."""
    is_told = lambda cut: words in cut or is_rabbitmqs_own(cut)
    told = []
    for client in load.clients:
        told += map(is_told, client.lost)
        errors = sum(map(is_rabbitmqs_own, client.lost)) + client.unanswered
        assert client.connections <= 1 + len(ALL) + more + errors, f"{client.lost}"
        assert all(is_told(cut) or client.reset in cut for cut in client.lost), f"{client.lost}"
        assert refused or not client.refused, f"{client.refused}"
    assert sum(told) > len(told) / 2, [client.lost for client in load.clients]


def metric(proxy, name):
    """By node: the values of the metric whose name ends so."""
    pattern = rf'^dlx_proxy_upstream_{name}{{node="([^"]*)",.*}} (\d+)$'
    return {node: int(value) for node, value in re.findall(pattern, proxy.get("/metrics")[1], re.M)}


def restart(cluster, load, node):
    with load.fault():
        cluster.end(node)
        load.is_answered()
        cluster.come_back(node)


@contextmanager
def cut_once(*loads):
    """One node is stopped here: no client is cut off by it twice. How often each load's were is printed."""
    clients = [client for load in loads for client in load.clients]
    before = [len(client.lost) for client in clients]
    yield
    cuts = [[cut for cut in client.lost[old:] if not is_rabbitmqs_own(cut)] for client, old in zip(clients, before)]
    twice = [(type(client).__name__, client.proxy.address, *client.ends) for client, cut in zip(clients, cuts) if len(cut) > 1]
    if twice:
        pytest.fail("\n".join(map(str, twice)), pytrace=False)
    print("cut off", *(sum(len(cut) for client, cut in zip(clients, cuts) if client in load.clients) for load in loads))


def words_of_stop(load):
    """What a node that is stopped said to its clients."""
    return {cut for client in load.clients for cut in client.lost if "(320)" in cut}


def knock(load, proxy):
    """Somebody connects by that proxy, and is served."""
    next(client for client in load.clients if client.proxy is proxy).connect().close()
    return True


def rests(load, proxy, address, knocks=30):
    """The node there is out: of those who connect all are served, and hardly any tries it, where each third one would if it did not rest."""
    tried = metric(proxy, "failures_total")[address]
    for _ in range(knocks):
        knock(load, proxy)
    tried = metric(proxy, "failures_total")[address] - tried
    assert tried < knocks / 4, tried
    assert metric(proxy, "up")[address] == 0 and metric(proxy, "connections").get(address, 0) == 0, proxy.get("/metrics")[1]


def replace(load, proxies, number, other):
    """A rolling restart of proxies: the new one is ready before the old one ends."""
    old, proxies[number] = proxies[number], other
    load.leave(old, other)
    old.stop()
    assert old.process.returncode == 0, old.text()
    load.flows()


def test_nodes_are_restarted_in_turn(cluster, vhost, start):
    """With TLS on both sides of one proxy. The same clients go straight to the nodes meanwhile: they are told the same, and as often."""
    proxies, nodes = [start(), start(tls=True)], [Direct(cluster), Direct(cluster, tls=True)]
    with Load(cluster, vhost, proxies) as load, Load(cluster, vhost, nodes, prefix="direct.") as direct:
        for node in ALL:
            with cut_once(load, direct):
                restart(cluster, load, node)
        direct.end()
        only_nodes_cut(load, "(320)")
        only_nodes_cut(direct, "(320)", refused=True)
        assert words_of_stop(load) == words_of_stop(direct)
        for proxy in proxies:
            until(lambda: proxy.is_ready(), "the links are up")
            connections = metric(proxy, "connections")
            assert sum(connections.values()) >= 4, connections
        counted(load, may_lose=["expired"])
    for proxy in proxies:
        assert "node=" in proxy.text()
        assert sum(metric(proxy, "failures_total").values()) < 100


def test_nodes_and_proxies_are_restarted_in_turn(cluster, vhost, start):
    """Each proxy hands its clients to one that is there already. Nothing excuses a loss while proxies change."""
    proxies = [start(), start()]
    with Load(cluster, vhost, proxies) as load:
        restart(cluster, load, 1)
        replace(load, proxies, 0, start())
        restart(cluster, load, 2)
        replace(load, proxies, 1, start())
        restart(cluster, load, 3)
        only_nodes_cut(load, "(320)", more=1)
        counted(load, may_lose=["expired"])


def test_a_node_stands_still(cluster, vhost, start):
    """It accepts connections, and says nothing: a client may meet it, and is cut off; those that come afterwards are not."""
    proxies = [start(), start()]
    with Load(cluster, vhost, proxies) as load:
        with load.fault():
            cluster.pause(1)
            load.is_answered()
            cluster.heal()
        counted(load, may_lose=["expired"])


def test_nodes_are_killed_in_turn(cluster, vhost, start):
    """One proxy speaks TLS on both sides. A node that comes back with a certificate that is not for it does not serve it: its clients go on with the
    other nodes, and hardly anybody tries that one, until the certificate is right."""
    proxies = [start(), start(tls=True)]
    proxy = proxies[1]
    wrong = {1: ("other", "UnknownIssuer"), 2: ("elsewhere", "elsewhere.example")}
    with Load(cluster, vhost, proxies) as load:
        for node in ALL:
            with load.fault():
                cluster.kill(node)
                load.is_answered()
                if node in wrong:
                    certificate, words = wrong[node]
                    cluster.shows(node, certificate)
                cluster.come_back(node)
                if node in wrong:
                    until(lambda: knock(load, proxy) and words in proxy.text(), f"the proxy says: {words}")
                # With the second one wrong and the third one killed, the first one alone is left.
                if node == 1:
                    cluster.shows(node, "server")
        only_nodes_cut(load)
        counted(load, may_lose=["expired"])
        address = cluster.tls_addresses[1]
        rests(load, proxy, address)
        cluster.shows(2, "server")
        until(lambda: knock(load, proxy) and metric(proxy, "up")[address] == 1, "the node is tried again, and serves", pause=0.2)


@pytest.mark.every_version
def test_a_node_is_alone(cluster, vhost, start):
    """A partition. 3.10 pauses the node that has no majority, and now and then another one with it, so that for as long as it lasts nobody may be
    answered (measured without a proxy, three times of six); 4.3 lets the node stand there."""
    proxies = [start(), start()]
    with Load(cluster, vhost, proxies) as load:
        with load.fault():
            cluster.part(1)
            load.lasts(8)
            cluster.heal()
        counted(load, may_lose=["expired"])


def test_two_nodes_are_away(cluster, vhost, start):
    """There is no majority: nothing can be published, and nothing of what was rejected is lost."""
    proxies = [start()]
    with Load(cluster, vhost, proxies) as load:
        # Quorum queues whose nodes are killed within a second of the declare may not come back (4.3.6, measured without a proxy), or lose what they
        # confirmed (in one in which the proxy has no part).
        load.lasts(5)
        with load.fault():
            cluster.kill(2)
            cluster.kill(3)
            load.lasts(8)
            cluster.heal()
        counted(load, may_lose=["expired"])
