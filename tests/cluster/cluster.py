"""The cluster of these tests, as tests/lab/clusters.sh started it, and what can happen to it."""

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
from lab import DEADLINE, PATIENT, REPOSITORY, Broker, until

SCRIPT = REPOSITORY / "tests/lab/cluster.sh"
USER = "dlx-proxy"


def clusters():
    """Those that the environment names: DLX_TEST_CLUSTERS="3.10.8=DIR;4.3.6=DIR"."""
    found = dict(item.split("=", 1) for item in os.environ.get("DLX_TEST_CLUSTERS", "").split(";") if item)
    if not found:
        raise LookupError("run `make cluster`, or tests/lab/clusters.sh pytest tests/cluster")
    return [Cluster(version, Path(folder)) for version, folder in found.items()]


class Cluster:
    """Three nodes, counted from 1."""

    def __init__(self, version, folder):
        self.version, self.folder = version, folder
        text = (folder / "cluster.env").read_text()
        self.addresses, self.tls_addresses = (re.search(f"\\b{name}='(.*)'", text)[1].split(",") for name in ("NODES", "TLS_NODES"))
        self.away = {}
        """Nodes that do not run, or stand still, and what lets them go on."""
        self.misnamed = set()
        """Nodes that show a certificate which is not theirs."""

    def upstream(self, nodes=(1, 2, 3), tls=False):
        scheme, addresses = ("amqps", self.tls_addresses) if tls else ("amqp", self.addresses)
        return f"{scheme}://{USER}:secret@" + ",".join(addresses[node - 1] for node in nodes)

    def certificate(self, name):
        """A file of certificates.sh."""
        return str(self.folder / "tls" / name)

    def trust(self):
        """For clients of whoever shows a certificate of the cluster's."""
        return ssl.create_default_context(cafile=self.certificate("ca.pem"))

    def shows(self, node, name):
        """To whoever connects with TLS from now on, the node shows this certificate; `server` is the right one."""
        for kind in ("pem", "key"):
            shutil.copy(self.certificate(f"{name}.{kind}"), self.folder / str(node) / "tls" / f"server.{kind}")
        (self.misnamed.discard if name == "server" else self.misnamed.add)(node)

    def do(self, deed, *node):
        words = [str(word) for word in (SCRIPT, deed, "--dir", self.folder, *node)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3 * DEADLINE)
        assert done.returncode == 0, f"{words}: {done.stderr}"

    def end(self, node):
        self.away[node] = "begin"
        self.do("end", node)

    def kill(self, node):
        self.away[node] = "begin"
        self.do("kill", node)

    def pause(self, node):
        self.away[node] = "go-on"
        self.do("pause", node)

    def come_back(self, *nodes):
        """All at once: a node of 3.10 may wait for another one."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self.do(self.away[node], node), nodes))
        for node in nodes:
            del self.away[node]

    def part(self, node):
        self.do("part", node)

    def heal(self):
        """All nodes run, know each other, and show the right certificate."""
        for node in self.misnamed.copy():
            self.shows(node, "server")
        self.come_back(*self.away)
        self.do("heal")
        for node in (1, 2, 3):
            until(lambda: self.is_up(node), f"node {node} takes clients")

    def ctl(self, node, *words):
        done = subprocess.run([self.folder / str(node) / "ctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE)
        assert done.returncode == 0, f"rabbitmqctl {words}: {done.stderr or done.stdout}"
        return done.stdout

    def is_up(self, node):
        try:
            self.connect(node, "/", socket_timeout=5, stack_timeout=5).close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def connect(self, node, vhost, **options):
        """A connection to that node, past all proxies."""
        host, port = self.addresses[node - 1].split(":")
        login = pika.PlainCredentials("guest", "guest")
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), vhost, login, **PATIENT | options))

    def management(self, node):
        """The management API of that node, for guest."""
        port = re.search(r"\bMANAGEMENT_PORT='?(\d+)", (self.folder / str(node) / "node.env").read_text())[1]
        return f"http://guest:guest@127.0.0.1:{port}"

    def arguments(self, vhost, queue):
        """With which a queue was declared."""
        login, place = self.management(self.some()).removeprefix("http://").split("@")
        login = base64.b64encode(login.encode()).decode()
        asked = urllib.request.Request(f"http://{place}/api/queues/{vhost}/{queue}", headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(asked, timeout=DEADLINE) as found:
            return json.load(found)["arguments"]

    def some(self):
        """A node that serves."""
        return next(node for node in (1, 2, 3) if node not in self.away)

    def make_vhost(self, name):
        """The proxy's user and guest may do all in it. It ends with the cluster."""
        broker = Broker(self.version, "", (str(self.folder / "1" / "ctl"),))
        broker.make([name], [(USER, "secret")], [(user, name, ".*", ".*", ".*") for user in ("guest", USER)])
