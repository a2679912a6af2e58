"""The tutorial, step by step: its files are saved, its commands are run, and what it says that they print has to come."""

import os
import re
import shlex
import subprocess
import sys
import urllib.request

import pytest

from console import request
from lab import BINARY, DEADLINE, REPOSITORY, Proxy, Via, until

pytestmark = pytest.mark.any_broker

TEXT = (REPOSITORY / "docs/tutorial.md").read_text()
BLOCKS = re.findall(r"(?:`([\w.-]+)`[^`]*?\n\n)?```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def files():
    """Each block behind a paragraph that says `Save this as`."""
    return dict(re.findall(r"Save this as `([\w.-]+)`.*?```\w+\n(.*?)```", TEXT, re.DOTALL))


def blocks(language):
    return [text for _, other, text in BLOCKS if other == language]


class Reader:
    """Somebody who does what the tutorial says, in a folder of their own, in front of a proxy on another port."""

    def __init__(self, folder, proxy):
        self.folder, self.proxy = folder, proxy
        for name, text in files().items():
            (folder / name).write_text(text.replace("127.0.0.1:5673", "%s:%d" % proxy.address))
        self.workers = []

    def work(self):
        """Starts worker.py; its output is a file."""
        log = self.folder / "worker.log"
        with log.open("ab") as out:
            url = "amqp://guest:guest@%s:%d" % self.proxy.address
            self.workers.append(subprocess.Popen([sys.executable, "worker.py", url], cwd=self.folder, stdout=out, stderr=subprocess.DEVNULL))
        return log

    def shop(self):
        url = "%s:%d" % self.proxy.address
        text = re.sub(r"127\.0\.0\.1:\d+", url, (self.folder / "shop.py").read_text())
        subprocess.run([sys.executable, "-c", text], check=True, timeout=DEADLINE)

    def command(self, start):
        """Runs the command of the tutorial that begins so."""
        (command,) = [line for text in blocks("sh") for line in text.splitlines() if line.startswith(start)]
        words = [BINARY, *shlex.split(command)[1:], "--url", "http://%s:%d" % self.proxy.admin]
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, env=os.environ | {"NO_COLOR": "1"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self):
        for worker in self.workers:
            worker.kill()
            worker.wait()


def test_the_tutorial(via, tmp_path):
    said = blocks("text")[0].splitlines()
    settings = tmp_path / "dlx-proxy.toml"
    settings.write_text(files()["dlx-proxy.toml"])
    start = lambda name: Proxy(via.broker.url, "full", tmp_path / name, DLX_PROXY_CONFIG=str(settings))
    proxy = start("proxy.log")
    reader = Reader(tmp_path, proxy)
    try:
        proxy.wait_ready()
        log = reader.work()
        until(lambda: "tutorial.orders" in via.broker.queues("/"), "the queue")
        reader.shop()
        until(lambda: log.read_text().splitlines() == said, log.read_text)
        until(lambda: via.broker.messages("/", "tutorial.orders.dead") == 1, "the dead letter")
        groups = reader.command("dlx-proxy dead-letters groups")
        assert "tutorial.orders" in groups and "delivery_limit" in groups, groups

        reader.command("dlx-proxy dead-letters redrive")
        until(lambda: len(log.read_text().splitlines()) == 2 * len(said) - 1, log.read_text)
        until(lambda: via.broker.messages("/", "tutorial.orders.dead") == 1, "it is dead again")

        reader.shop()
        again = lambda: log.read_text().splitlines()[2 * len(said) - 1 :]
        until(lambda: "failed 2 try 2" in again(), log.read_text)
        # It waits for its retry. What is killed before that may have sent it away and not have removed it: then it is there twice.
        until(lambda: via.broker.messages("/", "tutorial.orders") == 0, log.read_text)
        proxy.process.kill()
        proxy.process.wait()
        reader.proxy = proxy = start("second.log")
        proxy.wait_ready()
        reader.work()
        until(lambda: again()[-1] == said[-1], log.read_text)
        dead = lambda: via.broker.messages("/", "tutorial.orders.dead")
        until(lambda: dead() == 2, lambda: f"{dead()} dead letters\n{log.read_text()}")

        # The page leads from the vhost to the queue, where both are one group.
        def page(path):
            with urllib.request.urlopen(request(Via(via.broker, proxy, "/"), path), timeout=DEADLINE) as answer:
                return answer.read().decode()

        queue = "/vhosts/%2F/queues/tutorial.orders.dead"
        assert f'href="{queue}"' in page("/vhosts/%2F")
        assert "delivery_limit" in page(queue)
    finally:
        reader.close()
        proxy.stop()
        via.broker.eval(", ".join(
            f'catch rabbit_amqqueue:delete_with(element(2, rabbit_amqqueue:lookup({{resource, <<"/">>, queue, <<"{queue}">>}})), false, false, <<"tests">>)'
            for queue in ("tutorial.orders", "tutorial.orders.dead")) + ", ok.")
