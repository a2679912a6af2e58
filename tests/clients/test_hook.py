"""The hook: a server is told of each dead letter, in batches; while it is away they wait, and at the end of the process they still go."""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab import until

pytestmark = pytest.mark.any_broker


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
            yield
        finally:
            server.shutdown()
            server.server_close()

    @property
    def url(self):
        return f"http://me:s3cret@127.0.0.1:{self.port}/dead?from=proxy"

    def told(self):
        return [letter for post in self.posts for letter in post]


def test_the_server_is_told_of_each_dead_letter(own):
    server = Server()
    with server.running():
        own.restart(on_dead_letter=server.url)
        dead = own.queue("dead")
        source, lost = own.queue("source", dlx="", dlk=dead), own.queue("lost", dlx="own-nowhere")
        own.die(source, *[b"secret body"] * 30)
        own.die(lost)
        until(lambda: len(server.told()) == 31, lambda: f"{len(server.told())} of 31 told")
        assert len(server.posts) < 31, "in batches"
    # Of two targets either may answer first.
    letter, parked = (next(of for of in server.told() if of["queue"] == queue) for queue in (source, lost))
    assert letter.items() >= {
        "vhost": own.via.vhost, "queue": source, "reason": "rejected", "exchange": "", "routing-key": dead, "outcome": "confirmed", "cause": None,
        "bytes": len(b"secret body"),
    }.items()
    assert letter["rejected-by"]["user"] == own.via.broker.user
    assert "secret body" not in json.dumps(server.told())
    assert (parked["outcome"], parked["cause"]) == ("parked", "no_exchange")
    assert server.logins == {"Basic " + base64.b64encode(b"me:s3cret").decode()}
    taken = lambda: own.proxy.metric("dlx_proxy_hook_dead_letters_total", outcome="taken")
    until(lambda: taken() == 31, "all are counted")
    # While it is away they wait, and no dead letter does.
    own.die(source)
    own.proxy.says("the hook does not take dead letters")
    own.die(source, *[b"m"] * 8)
    own.has(dead, 39)
    with server.running():
        own.proxy.says("the hook takes dead letters again")
        until(lambda: (taken(), own.proxy.metric("dlx_proxy_hook_waiting")) == (40, 0), "all are told, and none waits")
        # At the end of the process all are told.
        own.die(source, *[b"m"] * 7)
        own.has(dead, 46)
        assert "s3cret" not in own.proxy.text() and "from=proxy" not in own.proxy.text()
        own.stop()
        assert len(server.told()) == 47
    own.start()
