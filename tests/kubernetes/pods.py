"""A Pod by hand: one network namespace, and in it the proxy's container as the manifest says. What a cluster has besides (its network, its
seccomp profile, its control plane) is not here."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from cable import Cable, pump
from lab import BINARY, until
from rendered import FILE, environment, bytes, pod, proxy

HERE = Path(__file__).resolve().parent
OUTSIDE, BROKER = "127.0.0.7", "127.0.0.8"
"""In the namespace: the address by which the Pod is reached from outside, and the broker's. The application's is 127.0.0.1."""
FILES = 1024
"""How many files may be open at first, as under containerd 2. Kubernetes itself has no word for it."""


def why_not():
    """Why no Pod can be made here; nothing if one can."""
    for tool in ("unshare", "nsenter", "setpriv", "prlimit", "pivot_root"):
        if not shutil.which(tool):
            return f"there is no {tool}"
    done = subprocess.run([*fresh(), "unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return f"namespaces cannot be made here: {done.stderr.strip()}" if done.returncode else None


def is_root():
    return os.geteuid() == 0


def fresh():
    return ["unshare", "--net"] if is_root() else ["unshare", "--user", "--map-root-user", "--net"]


class Pod:
    def __init__(self, kinds, broker, folder):
        """`broker` is where a real one listens, with the user guest; in the Pod its name is rabbitmq."""
        self.spec, self.container, self.folder = pod(kinds), proxy(kinds), folder
        self.process = self.cgroup = None
        self._files(kinds["ConfigMap"])
        self._lock = threading.Lock()
        self._asked, other = socket.socketpair()
        words = [*fresh(), sys.executable, HERE / "door.py", str(other.fileno())]
        self._door = subprocess.Popen(words, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        other.close()
        self._asked.settimeout(10)
        assert self._asked.recv(16) == b"up\n"
        self.cable = Cable(broker, lambda address=(BROKER, 5672): self.socket("listen", *address))

    def _files(self, config):
        """What the volumes and the runtime put into the container."""
        self._paths = ["etc/hosts", FILE.lstrip("/")]
        for path, text in zip(self._paths, (f"127.0.0.1 localhost\n{BROKER} rabbitmq\n", config["data"]["dlx-proxy.toml"])):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

    def socket(self, what, host, port):
        """A socket of the Pod's namespace."""
        with self._lock:
            self._asked.sendall(json.dumps([what, host, port]).encode() + b"\n")
            answer, handles, _, _ = socket.recv_fds(self._asked, 64, 1)
        if answer != b"ok\n":
            raise ConnectionRefusedError(answer.decode().strip())
        made = socket.socket(fileno=handles[0])
        made.setblocking(True)
        return made

    # === the container

    def start(self):
        limit = bytes(self.container["resources"]["limits"]["memory"])
        self.cgroup = memory_group(limit)
        within = ["nsenter", "--target", str(self._door.pid), "--net", *([] if is_root() else ["--user", "--preserve-credentials"])]
        limits = ["prlimit", f"--nofile={FILES}:", *([] if self.cgroup else [f"--data={limit}"])]
        new = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", HERE / "container.sh", self.folder, BINARY]
        new += [self.cgroup or "", "set" if is_root() else "map", *self._paths, "--", *self.container["args"]]
        # A Service named dlx-proxy in the namespace adds such variables to every Pod.
        variables = environment(self.container, {"upstream": "amqp://guest:guest@rabbitmq:5672"}) | {
            "PATH": os.environ["PATH"],
            "DLX_PROXY_SERVICE_HOST": "10.0.0.1",
            "DLX_PROXY_PORT": "tcp://10.0.0.1:5673",
        }
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*within, *limits, *new], env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    @property
    def pid(self):
        """The proxy, which is process 1 in there; seen from outside."""

        def look():
            assert self.process.poll() is None, self.log.read_text()
            for child in _children(self.process.pid):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text() == "dlx-proxy\n":
                        return child

        return until(look, lambda: f"the proxy's process: {self.log.read_text()}")

    def status(self):
        """What the kernel says of it."""
        return dict(line.split(":\t", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if ":\t" in line)

    def stop(self):
        """As the kubelet does: SIGTERM, and so much time; the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(self.spec["terminationGracePeriodSeconds"])

    def close(self):
        if self.process is not None and self.process.poll() is None:
            # Not its parent: the kernel forgets whom to kill with that when the user changes.
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait()
        self._door.kill()
        self._door.wait()
        self.cable.cut()
        self._asked.close()
        if self.cgroup:
            until(lambda: _removed(self.cgroup), "the cgroup is empty")

    # === who talks to it

    def probe(self, name):
        """As the kubelet would: from outside, by the port's name, within its time. The status, or 0 if there is no answer."""
        said = self.container[name]
        (port,) = [each["containerPort"] for each in self.container["ports"] if each["name"] == said["httpGet"]["port"]]
        connection = http.client.HTTPConnection(OUTSIDE, port)
        try:
            connection.sock = self.socket("connect", OUTSIDE, port)
            connection.sock.settimeout(said.get("timeoutSeconds", 1))
            connection.request("GET", said["httpGet"]["path"])
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def started(self):
        """Whether the start-up probe succeeds before it has failed too often."""
        said = self.container["startupProbe"]
        for _ in range(said["failureThreshold"]):
            if self.probe("startupProbe") == 200:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(said["periodSeconds"])
        return False

    @contextlib.contextmanager
    def port(self, host, port):
        """A port on this side for clients that make their connections themselves."""
        server = socket.create_server(("127.0.0.1", 0))

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    near, _ = server.accept()
                    far = self.socket("connect", host, port)
                    for source, sink in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=(source, sink), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.close()


def memory_group(limit):
    """A control group for this much memory, of version 1 or 2, or none if we may not make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base, knob = {"memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), "": ("/sys/fs/cgroup", "memory.max")}.get(controllers, (None, None))
        if base:
            made = Path(f"{base}{path}/dlx-proxy-pod-{os.getpid()}-{time.monotonic_ns()}")
            try:
                made.mkdir()
                try:
                    (made / knob).write_text(str(limit))
                    return made
                except OSError:
                    made.rmdir()
            except OSError:
                pass
    return None


def _removed(group):
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def _children(pid):
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _children(int(child))
