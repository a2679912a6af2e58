"""Frameworks whose jobs fail, wait and hang. Each program prints a line for each job that it begins: its name, and the time in milliseconds.

`fails` returns its message each time, `kills` loses it with its process, `late` was published to run half a second later, `hangs` does not settle
its message before it is there again. `delayed` is Messenger's own delay, by a queue with a TTL.
"""

import itertools
import os
import re
import subprocess
import sys
from collections import Counter

import pika
import pytest

from lab import DEADLINE, REPOSITORY, until
from programs import HERE, javascript, php, python

DELAYS = [200, 400, 800]
LATE = 500
RETRIED = {"fails": len(DELAYS) + 1, "late": 1}
SETTINGS = """
delayed-publish = ["x-delay", "x-opt-delivery-time"]
vhosts = {} # ready only with its links: a return that comes before them goes back at once
"""
POLICIES = """
[[policy]]
name = "work"
vhost = "{0}"
pattern = "^work$"
[policy.definition]
dead-letter-exchange = ""
dead-letter-routing-key = "dead"
delayed-retry-delays = {1}
delivery-limit = {2}

[[policy]]
name = "slow"
vhost = "{0}"
pattern = "^slow$"
[policy.definition]
ack-timeout = "1s"
delivery-limit = 1
"""
CELERY = (sys.executable, "-m", "celery", "-A", "with_celery")
WORKER = ("worker", "--concurrency=1", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING")
FRAMEWORKS = {
    "celery": (lambda url: (*CELERY, f"--broker={url}", *WORKER), RETRIED | {"kills": len(DELAYS) + 1}, "dead", None),
    "dramatiq": (lambda url: (*python("with_dramatiq.py"), url), RETRIED | {"hangs": 2}, "work.XQ", "no address"),
    "messenger": (lambda url: (*php("messenger.php"), url), RETRIED | {"delayed": 1}, "dead", "no address"),
    "rascal": (lambda url: (*javascript("rascal.js"), url), RETRIED | {"hangs": 2}, "dead", "no address"),
}
"""Its command; how often each job begins; where the messages of those that fail are at the end, and the reason in them."""


@pytest.fixture(scope="module")
def way(configured):
    policies = "".join(POLICIES.format(vhost, DELAYS, len(DELAYS)) for vhost in FRAMEWORKS)
    return configured(SETTINGS.format(list(FRAMEWORKS)) + policies, FRAMEWORKS)


@pytest.mark.parametrize("guide, program", [("symfony.md", "messenger.php"), ("workers.md", "rascal.js"), ("workers.md", "with_dramatiq.py")])
def test_the_guide_has_the_code_of_the_program(guide, program):
    language = {"php": "php", "js": "js", "py": "python"}[program.partition(".")[2]]
    blocks = re.findall(rf"```{language}\n((?:class|function) .*?)```", (REPOSITORY / "docs/how-to" / guide).read_text(), re.DOTALL)
    code = (HERE / program).read_text()
    assert blocks and [block for block in blocks if block not in code and "Factory" not in block] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_jobs_fail_wait_and_hang(broker, way, tmp_path, framework):
    command, expected, end, reason = FRAMEWORKS[framework]
    failing = [name for name in ("fails", "kills") if name in expected]
    direct, through = way.urls(framework)
    connection = pika.BlockingConnection(pika.URLParameters(direct))
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    output, complaints = tmp_path / "output", tmp_path / "complaints"
    begun = lambda: re.findall(r"^(\w+) (\d+)$", output.read_text(), re.MULTILINE)
    with output.open("wb") as out, complaints.open("wb") as err:
        program = subprocess.Popen(
            [str(word) for word in command(through)], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            env=os.environ | {"PYTHONPATH": str(HERE)})
    try:
        until(lambda: len(begun()) > sum(expected.values()), lambda: f"{Counter(begun()).most_common(20)}; {complaints.read_text()}", pause=0.1)
        until(lambda: broker.messages(framework, end) == len(failing), "what failed is dead")
    finally:
        program.terminate()
        try:
            program.wait(DEADLINE)
        finally:
            program.kill()
    when = {name: [int(millis) for word, millis in begun() if word == name] for name in ("begun", *expected)}
    assert {name: len(times) for name, times in when.items()} == {"begun": 1} | expected
    for name in failing:
        waits = [after - before for before, after in itertools.pairwise(when[name])]
        assert all(wait >= delay for wait, delay in zip(waits, DELAYS, strict=True)), "never early"
        _, properties, _ = channel.basic_get(end, auto_ack=True)
        assert properties.headers["x-death"][0]["reason"] == "delivery_limit"
        assert properties.headers.get("x-exception-message") == reason
    assert when["late"][0] - when["begun"][0] >= LATE, "never early"
    connection.close()
