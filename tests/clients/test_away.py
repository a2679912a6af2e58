"""A broker that is away, or has an alarm: what clients hear of that, and that all goes on by itself afterwards."""

import contextlib
import socket

from lab import Proxy, Via, balancer, environment, free_port, until
from raw import PROTOCOL_HEADER
from scene import Scene


def test_a_broker_that_comes_later(via, tmp_path):
    """Away at start, and away again."""
    port, credentials = free_port(), via.broker.parameters.credentials
    upstream = f"amqp://{credentials.username}:{credentials.password}@127.0.0.1:{port}"
    proxy = Proxy(upstream, "full", tmp_path / "log", **environment(vhosts=via.vhost))
    scene = Scene(Via(via.broker, proxy), "later")
    try:
        for _ in range(2):
            said = lambda: proxy.get("/readyz")
            until(lambda: said()[0] == 503 and "publisher link" in said()[1] and "intake link" in said()[1], said)
            assert proxy.get("/healthz")[0] == 200
            with socket.create_connection(proxy.address, 3) as refused, contextlib.suppress(ConnectionResetError):
                refused.sendall(PROTOCOL_HEADER)
                assert refused.recv(100) == b"", "at once, and without a word"
            with balancer(tmp_path, port, via.broker.address):
                proxy.wait_ready()
                dead = scene.queue("dead")
                scene.die(scene.queue("work", dlx="", dlk=dead))
                assert len(scene.all_of(dead, 1)) == 1
                scene.via.close()
        scene.close()
        scene.via.close()
    finally:
        proxy.stop()


def test_clients_hear_of_an_alarm_as_from_the_broker(scene):
    """Those that publish. All that was published is carried out, and whoever consumes goes on."""
    heard, clients, consumer = {True: [], False: []}, {}, scene.via.connect()
    for direct, words in heard.items():
        clients[direct] = scene.via.connect(direct=direct)
        clients[direct].add_on_connection_blocked_callback(lambda _, frame, words=words: words.append(frame.method.reason))
        clients[direct].add_on_connection_unblocked_callback(lambda *_, words=words: words.append("unblocked"))
    consumer.add_on_connection_blocked_callback(lambda *_: heard[False].append("consumers need not know"))
    queue, works = scene.queue("work"), lambda: [client.process_data_events(0.02) for client in (*clients.values(), consumer)]
    with scene.via.broker.under_memory_alarm():
        for client in clients.values():
            scene.publish("", queue, channel=client.channel())
        until(lambda: all(heard.values()), "both are blocked", pause=works)
        scene.queue("dead", channel=consumer.channel())
    until(lambda: all("unblocked" in words for words in heard.values()), "both go on", pause=works)
    assert len(heard[True]) == 2 and heard[False] == heard[True]
    scene.has(queue, 2)
    for client in (*clients.values(), consumer):
        client.close()
