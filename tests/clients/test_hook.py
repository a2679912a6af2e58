"""The hook: a server is told of each dead letter, in batches; while it is away they wait, and at the end of the process they still go."""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab import until
from own import PARKED, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]


class Server:
    """Keeps what is posted. Its port stays its own while it is away."""

    def __init__(self):
        self.posts, self.logins, self.port = [], set(), 0

    @contextlib.contextmanager
    def running(self):
        posts, logins = self.posts, self.logins

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/dead?from=proxy", "application/json")
                logins.add(self.headers["Authorization"])
                posts.append(json.loads(body)["dead-letters"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    @property
    def url(self):
        return f"http://me:s3cret@127.0.0.1:{self.port}/dead?from=proxy"

    def told(self):
        return [letter for post in self.posts for letter in post]


def die(own, source, count):
    for _ in range(count):
        own.publish(source, b"secret body")
        own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)


def value(own, series):
    lines = own.proxy.get("/metrics")[1].splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith(series + " ")), 0)


def test_the_server_is_told_of_each_dead_letter_in_batches(own):
    server = Server()
    with server.running():
        own.restart(on_dead_letter=server.url)
        dead = own.queue("dead")
        source = own.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
        lost = own.queue("lost", x_dead_letter_exchange="own-nowhere")
        die(own, source, 30)
        die(own, lost, 1)
        until(lambda: len(server.told()) == 31, lambda: f"{len(server.told())} of 31 told")
        assert len(server.posts) < 31
    letter = server.told()[0]
    assert {name: letter[name] for name in ("vhost", "queue", "reason", "exchange", "routing-key", "outcome", "cause", "octets")} == {
        "vhost": own.via.vhost, "queue": source, "reason": "rejected", "exchange": "", "routing-key": dead, "outcome": "confirmed", "cause": None,
        "octets": len(b"secret body"),
    }
    assert letter["rejected-by"]["user"] == own.via.broker.user
    assert "secret body" not in json.dumps(server.told())
    parked = server.told()[-1]
    assert (parked["queue"], parked["outcome"], parked["cause"]) == (lost, "parked", "no_exchange")
    assert server.logins == {"Basic " + base64.b64encode(b"me:s3cret").decode()}
    until(lambda: value(own, 'dlx_proxy_hook_dead_letters_total{outcome="taken"}') == 31, "all are counted")
    assert "s3cret" not in own.proxy.text() and "from=proxy" not in own.proxy.text()


def test_while_it_is_away_they_wait_and_no_dead_letter_does(own):
    server = Server()
    with server.running():
        own.restart(on_dead_letter=server.url)
        dead = own.queue("dead")
        source = own.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    die(own, source, 1)
    until(lambda: "the hook does not take dead letters" in own.proxy.text(), "a POST failed")
    die(own, source, 8)
    until(lambda: own.depth(dead) == 9, "all are dead-lettered meanwhile")
    with server.running():
        until(lambda: value(own, 'dlx_proxy_hook_dead_letters_total{outcome="taken"}') == 9, "all are told")
        until(lambda: value(own, "dlx_proxy_hook_waiting") == 0, "none waits")
    assert "the hook does not take dead letters" in own.proxy.text() and "the hook takes dead letters again" in own.proxy.text()


def test_at_the_end_of_the_process_all_are_told(own):
    server = Server()
    with server.running():
        own.restart(on_dead_letter=server.url)
        dead = own.queue("dead")
        source = own.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
        die(own, source, 7)
        until(lambda: own.depth(dead) == 7, "all are dead-lettered")
        own.stop()
        assert len(server.told()) == 7
    own.restart()
