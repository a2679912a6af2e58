"""The lab of these tests: brokers given by the environment, proxies started in front of them.

DLX_TEST_BROKERS  "3.10.8=amqp://guest:guest@127.0.0.1:P1,4.3.6=amqp://..."
DLX_TEST_CTL      "3.10.8=<command>;4.3.6=<command>": a rabbitmqctl for each of them
DLX_TEST_TLS      "3.10.8=amqps://guest:guest@localhost:P1,4.3.6=amqps://...": the same brokers with TLS
DLX_TEST_DIR      "3.10.8=<folder>;4.3.6=<folder>": of each of them; its `tls` has the certificates
DLX_TEST_PROXY         the proxy (default: target/debug/dlx-proxy of this repository)
"""

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pika

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DLX_TEST_PROXY", str(REPOSITORY / "target/debug/dlx-proxy"))
DEADLINE = 60.0
"""Seconds until a condition that a test waits for counts as never met."""
PATIENT = {"heartbeat": 0, "socket_timeout": DEADLINE, "stack_timeout": DEADLINE}
"""For connections. No heartbeats because most tests do not always read."""


def until(condition, what, deadline=DEADLINE, pause=0.02, progress=None):
    """Wait until condition() is true and return what it returned; pause() lets a connection work. Where there is much to do on a machine that may be
    slow, the deadline counts from the last time that progress() was another. The last look begins behind the deadline."""
    end, seen = time.monotonic() + deadline, None
    while True:
        begun = time.monotonic()
        if result := condition():
            return result
        if progress and (now := progress()) != seen:
            end, seen = time.monotonic() + deadline, now
        assert begun < end, f"not within {deadline} s: {what() if callable(what) else what}"
        pause() if callable(pause) else time.sleep(pause)


DOOR = (REPOSITORY / "tests/lab/door.erl").read_text()
"""To start a rabbitmqctl takes a second or two of a processor, which these tests would do a thousand times."""


@dataclass(frozen=True)
class Broker:
    """One RabbitMQ node and the words by which it is controlled."""

    version: str
    url: str
    control: tuple
    tls: str = ""
    folder: str = ""

    @property
    def is_4x(self):
        return self.is_from(4)

    def is_from(self, *version):
        """It is of that version or a newer one."""
        return tuple(map(int, self.version.split("."))) >= version

    @functools.cached_property
    def parameters(self):
        return pika.URLParameters(self.url)

    @property
    def address(self):
        return self.parameters.host, self.parameters.port

    @property
    def user(self):
        return self.parameters.credentials.username

    def ctl(self, *words):
        done = subprocess.run([*self.control, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE)
        assert done.returncode == 0, f"rabbitmqctl {words}: {done.stderr or done.stdout}"
        return done.stdout

    @functools.cached_property
    def _door(self):
        port = int(self.ctl("-q", "eval", DOOR))
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=2 * DEADLINE)
        except ConnectionRefusedError:
            return None  # The node is elsewhere.

    def eval(self, program):
        """What the node says to this Erlang."""
        if self._door is None:
            return self.ctl("-q", "eval", program).strip()
        text = program.encode()
        self._door.sendall(struct.pack(">I", len(text)) + text)
        with self._door.makefile("rb") as answers:
            (size,) = struct.unpack(">I", answers.read(4))
            answer = answers.read(size).decode()
        assert not answer.startswith("{'EXIT'"), f"{program}: {answer}"
        return answer

    def _names(self, kind, vhost, listed):
        names = f'[Name || {{resource, <<"{vhost}">>, {kind}, Name}} <- {listed}]'
        answer = self.eval(f'base64:encode(iolist_to_binary(lists:join("\\n", {names}))).')
        return base64.b64decode(re.fullmatch(r'<<"?(.*?)"?>>', answer)[1]).decode().split("\n")

    def exchanges(self, vhost):
        """The names of all exchanges there."""
        return self._names("exchange", vhost, "rabbit_exchange:list_names()")

    def queues(self, vhost):
        """The names of all queues there."""
        return self._names("queue", vhost, "rabbit_amqqueue:list_names()")

    def messages(self, vhost, queue):
        """All in the queue, the unsettled ones too. Of a quorum queue as they were some seconds ago."""
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{vhost}">>, queue, <<"{queue}">>}})'
        return int(re.search(r"\d+", self.eval(f"{found}, rabbit_amqqueue:info(Q, [messages])."))[0])

    @contextlib.contextmanager
    def under_memory_alarm(self):
        """While this lasts, the broker reads from no connection that publishes."""
        usual = self.eval("vm_memory_monitor:get_vm_memory_high_watermark().")
        try:
            self.eval("vm_memory_monitor:set_vm_memory_high_watermark(0.00001).")
            until(lambda: "memory" in self.eval("rabbit_alarm:get_alarms()."), "the alarm")
            yield
        finally:
            self.eval(f"vm_memory_monitor:set_vm_memory_high_watermark({usual}).")

    def _call(self, function, *words):
        """A function of the node that answers `ok`, with binaries as arguments."""
        binaries = ", ".join(f'base64:decode(<<"{base64.b64encode(word.encode()).decode()}">>)' for word in (*words, "tests"))
        answer = self.eval(f"{function}({binaries}).")
        assert answer == "ok", answer

    def permit(self, vhost, user, configure, write, read):
        """As `rabbitmqctl set_permissions`."""
        self._call("rabbit_auth_backend_internal:set_permissions", user, vhost, configure, write, read)

    def permit_topic(self, vhost, user, exchange, write):
        """As `rabbitmqctl set_topic_permissions`, to read nothing."""
        self._call("rabbit_auth_backend_internal:set_topic_permissions", user, vhost, exchange, write, "^$")

    def set_policy(self, vhost, name, pattern, definition, priority=0, apply_to="queues"):
        """As `rabbitmqctl set_policy`."""
        self._call("rabbit_policy:parse_set", vhost, name, pattern, json.dumps(definition), str(priority), apply_to)

    def clear_policy(self, vhost, name):
        """As `rabbitmqctl clear_policy`."""
        self._call("rabbit_policy:delete", vhost, name)

    def make(self, vhosts, users, rights):
        """Vhosts and users (name, password), made anew; `rights` are (user, vhost, configure, write, read)."""

        def hashed(password):
            return base64.b64encode(b"salt" + hashlib.sha256(b"salt" + password.encode()).digest()).decode()

        self.unmake(vhosts, [user for user, _ in users])
        kind = "rabbit_password_hashing_sha256"
        definitions = {
            "vhosts": [{"name": vhost} for vhost in vhosts],
            "users": [{"name": user, "password_hash": hashed(password), "hashing_algorithm": kind, "tags": []} for user, password in users],
            "permissions": [dict(zip(("user", "vhost", "configure", "write", "read"), right)) for right in rights],
        }
        # Not by rabbitmqctl: the import_definitions of 4.3 cannot read a pipe, and a file's path may mean another one over there.
        encoded = base64.b64encode(json.dumps(definitions).encode()).decode()
        answer = self.eval(f'rabbit_definitions:import_raw(base64:decode(<<"{encoded}">>)).')
        assert answer == "ok", answer

    def unmake(self, vhosts, users):
        """Delete those that are there."""
        words = [f'catch rabbit_vhost:delete(<<"{vhost}">>, <<"tests">>)' for vhost in vhosts]
        words += [f'catch rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"tests">>)' for user in users]
        self.eval(", ".join([*words, "ok"]) + ".")


def brokers():
    """The brokers that the environment names, oldest first."""

    def pairs(variable, separator):
        return dict(item.split("=", 1) for item in os.environ.get(variable, "").split(separator) if item.strip())

    controls = pairs("DLX_TEST_CTL", ";")
    found = pairs("DLX_TEST_BROKERS", ",")
    if not found or set(found) != set(controls):
        raise LookupError("set DLX_TEST_BROKERS and DLX_TEST_CTL, for the same versions\n" + __doc__)
    tls, folders = pairs("DLX_TEST_TLS", ","), pairs("DLX_TEST_DIR", ";")
    return [Broker(version, url, tuple(shlex.split(controls[version])), tls.get(version), folders.get(version)) for version, url in found.items()]


def settings_of(folder):
    """What rabbit.sh says of the node there."""
    return dict(line.split("=", 1) for line in (Path(folder) / "node.env").read_text().splitlines())


def rabbit(what, folder, *words):
    """Starts or stops the node of that folder."""
    subprocess.run([REPOSITORY / "tests/lab/rabbit.sh", what, "--dir", folder, *words], check=True, timeout=3 * DEADLINE, stdin=subprocess.DEVNULL)


def middle_root():
    """Where RabbitMQ 4.0 is unpacked, with all that it needs."""
    asked = ["bash", "-c", '. "$0" && middle_root', REPOSITORY / "tests/lab/lib.sh"]
    return subprocess.run(asked, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextlib.contextmanager
def node(name, root, *words):
    """A node of a test's own, of the version that is unpacked there (None: of the installed one), and gone afterwards. `words` are for rabbit.sh."""
    folder = REPOSITORY / ".lab/nodes" / str(os.getppid()) / name
    try:
        rabbit("start", folder, *(["--root", root] if root else []), *words)
        told = settings_of(folder)
        broker = Broker(told["VERSION"], f"amqp://guest:guest@127.0.0.1:{told['AMQP_PORT']}", (str(folder / "ctl"),), folder=str(folder))
        # It takes clients a moment before it counts as running, and some of rabbitmqctl's commands want that.
        broker.ctl("await_startup")
        yield broker
    finally:
        rabbit("stop", folder)


def node_like(neighbour, name, *words):
    """A node of a test's own, of the same version as that broker: beside it, as a socket of epmd has a short name."""
    return node(f"{name}-{neighbour.version}", settings_of(REPOSITORY / neighbour.folder).get("ROOT"), *words)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextlib.contextmanager
def balancer(folder, port, target, send=""):
    """haproxy at that port, which leads to that address, with a PROXY header if `send` says so."""
    configuration = folder / "haproxy.cfg"
    configuration.write_text(
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen amqp\n  bind 127.0.0.1:{port}\n  server target {target[0]}:{target[1]} {send}\n"
    )
    process = subprocess.Popen([shutil.which("haproxy"), "-db", "-f", configuration])
    try:
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "haproxy")
        yield
    finally:
        process.kill()
        process.wait()


def environment(**settings):
    """Settings as environment variables of the proxy."""
    return {f"DLX_PROXY_{name.upper()}": str(value) for name, value in settings.items()}


def inherited():
    """The environment without settings of the proxy."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DLX_PROXY_")}


class Proxy:
    """One `dlx-proxy run` on free ports; its log is a file."""

    logs = []
    """Of all that were started."""
    trust = None
    """How clients know its certificate, where they come with TLS."""

    def __init__(self, upstream, mode, log: Path, socket=None, **environment):
        local = "127.0.0.1:0"
        self.log = log
        Proxy.logs.append(log)
        # Many log in as a user without rights in `/`, of which they want nothing.
        environment = {"DLX_PROXY_READY_WHEN_REFUSED": "true"} | environment
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [BINARY, "run", "--listen", f"unix:{socket}" if socket else local, "--admin", local, "--upstream", upstream],
                env=inherited() | {"DLX_PROXY_MODE": mode, "DLX_PROXY_PARKED_RETRY": "0", "NO_COLOR": "1"} | environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )
        try:
            self.address = str(socket) if socket else self._bound("client")
            self.admin = self._bound("admin")
        except BaseException:
            self.stop()
            raise

    @property
    def tls_address(self):
        """Of the port with TLS, if it has one."""
        return self._bound("client-tls")

    @property
    def admin_tls(self):
        """Of the admin port with TLS, if it has one."""
        return self._bound("admin-tls")

    def _bound(self, leg):
        """The address in the line that says `listening leg=... addr=...`."""

        def look():
            assert self.process.poll() is None, f"the proxy ended: {self.text()}"
            return re.search(rf'listening.* leg="?{leg}"? addr=([\d.]+):(\d+)', self.text())

        found = until(look, lambda: f"a `listening` line for leg={leg} in: {self.text()}")
        return found[1], int(found[2])

    def text(self):
        return re.sub(r"\x1b\[[\d;]*m", "", self.log.read_text(errors="replace"))

    def get(self, path):
        """Status and text of a page of the admin port."""
        request = urllib.request.Request("http://%s:%d%s" % (*self.admin, path))
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def metric(self, name, **labels):
        """The sum of its series with these labels."""
        wanted, found = [f'{label}="{value}"' for label, value in labels.items()], 0
        for line in self.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(label in series for label in wanted):
                found += float(value)
        return found

    def event(self, event):
        """How often the proxy has counted this event."""
        return self.metric("dlx_proxy_events_total", event=event)

    def says(self, words):
        """Waits until these words are in the log."""
        until(lambda: words in self.text(), lambda: f"{words!r} in {self.text()}")

    def is_ready(self):
        return self.get("/readyz")[0] == 200

    def wait_ready(self):
        until(self.is_ready, lambda: f"/readyz says {self.get('/readyz')}; log: {self.text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """End it as an operator would; it has to go by itself (after the 25 s of `drain-timeout`), and must not have panicked."""
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("\n".join(["the proxy does not end", *self.text().splitlines()[-40:]])) from None
        assert "panicked" not in self.text(), self.text()


class Via:
    """The way from a test to a broker, through a proxy."""

    def __init__(self, broker, proxy=None, vhost="clients"):
        self.broker, self.proxy, self.vhost = broker, proxy, vhost
        self._kept = {}

    def connect(self, *, direct=False, user=None, vhost=None, **options):
        """A pika connection of its own."""
        host, port = self.broker.address if direct else self.proxy.address
        login = pika.PlainCredentials(user, "secret") if user else self.broker.parameters.credentials
        options = PATIENT | {"blocked_connection_timeout": DEADLINE} | options
        return pika.BlockingConnection(pika.ConnectionParameters(host, port, vhost or self.vhost, login, **options))

    def _shared(self, direct):
        kept = self._kept.get(direct)
        if kept is None or not kept.is_open:
            kept = self._kept[direct] = self.connect(direct=direct)
        return kept

    @property
    def connection(self):
        """The connection that a test uses where it needs but one."""
        return self._shared(direct=False)

    @property
    def direct(self):
        """A connection to the broker itself, to prepare and to look."""
        return self._shared(direct=True)

    def close(self):
        for kept in self._kept.values():
            with contextlib.suppress(pika.exceptions.AMQPError):
                kept.close()
        self._kept.clear()


def in_turn(config, items, place, versions, concerned):
    """Of the tests that are concerned each runs on one of the versions. `place`: the parameter that says on which."""
    some = {item: item.callspec.params[place].version for item in items if place in getattr(item, "fixturenames", ()) and concerned(item)}
    name = lambda item: item.nodeid.replace(some[item], "", 1)
    names = list(dict.fromkeys(map(name, some)))
    elsewhere = {item for item in some if versions[names.index(name(item)) % len(versions)] != some[item]}
    config.hook.pytest_deselected(items=list(elsewhere))
    items[:] = [item for item in items if item not in elsewhere]
