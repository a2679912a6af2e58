"""The Pods run by hand beside a real broker, which there is for each of them: the proxy's container with the manifest's own words and limits."""

import re
from pathlib import Path

import pika
import pytest

import pods
from lab import PATIENT, brokers, until
from pods import FILES, OUTSIDE, Pod
from rendered import bytes

pytestmark = pytest.mark.skipif(pods.why_not() is not None, reason=str(pods.why_not()))
GUEST = pika.PlainCredentials("guest", "guest")


@pytest.fixture(params=("standalone", "beside"))
def running(request, tmp_path):
    """The oldest broker for the one, the newest for the other."""
    broker = brokers()[0 if request.param == "standalone" else -1]
    pod = Pod(request.getfixturevalue(request.param), broker.address, tmp_path)
    pod.clients_at = OUTSIDE if request.param == "standalone" else "127.0.0.1"
    try:
        pod.start()
        yield pod
    finally:
        pod.close()


def connect(port):
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, "/", GUEST, **PATIENT))


def test_a_pod_lives_and_ends_as_its_manifest_says(running):
    assert running.started(), running.log.read_text()
    until(lambda: running.probe("readinessProbe") == 200, running.log.read_text)
    within_its_limits(running)
    with running.port(running.clients_at, 5673) as port:
        connection = connect(port)
        channel = connection.channel()
        to_its_death(channel)
        without_a_broker(running, port)
        channel = (connection := connect(port)).channel()
        said = until(lambda: next((got for got in [channel.basic_get("pod-orders")] if got[0]), None), "the message that was left")
        assert said[2] == b"kept"
        assert running.stop() == 0, running.log.read_text()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(time_limit=30)
        assert closed.value.reply_code == 320
    for gone in ("livenessProbe", "readinessProbe"):
        assert running.probe(gone) == 0


def within_its_limits(running):
    status = running.status()
    assert all(int(status[caps], 16) == 0 for caps in ("CapEff", "CapPrm", "CapBnd" if pods.is_root() else "CapAmb")), status
    assert status["NoNewPrivs"] == "1" and status["NSpid"].split()[-1] == "1"
    if pods.is_root():
        assert set(status["Uid"].split()) == {"10001"} == set(status["Gid"].split())
    (root,) = [words for line in Path(f"/proc/{running.pid}/mountinfo").read_text().splitlines() if (words := line.split())[4] == "/"]
    assert "ro" in root[5].split(","), root
    # It raises what it was started with as far as it may.
    soft, hard = re.search(r"^Max open files +(\d+) +(\d+)", Path(f"/proc/{running.pid}/limits").read_text(), re.M).groups()
    assert soft == hard and int(hard) > FILES
    if running.cgroup:
        (knob,) = [each for name in ("memory.max", "memory.limit_in_bytes") if (each := running.cgroup / name).exists()]
        assert int(knob.read_text()) == bytes(running.container["resources"]["limits"]["memory"])
        assert str(running.pid) in (running.cgroup / "cgroup.procs").read_text().split()
    # What is for the Pod alone is reached from nowhere else; the rest is.
    if running.clients_at != OUTSIDE:
        with pytest.raises(ConnectionRefusedError):
            running.socket("connect", OUTSIDE, 5673)


def to_its_death(channel):
    channel.queue_declare("pod-dead", durable=True)
    channel.queue_declare("pod-orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pod-dead"})
    channel.queue_purge("pod-orders")
    for body in (b"dies", b"kept"):
        channel.basic_publish("", "pod-orders", body, pika.BasicProperties(delivery_mode=2))
    got = until(lambda: next((got for got in [channel.basic_get("pod-orders")] if got[0]), None), "a message")
    assert got[2] == b"dies"
    channel.basic_reject(got[0].delivery_tag, requeue=False)
    dead = until(lambda: next((got for got in [channel.basic_get("pod-dead", auto_ack=True)] if got[0]), None), "its dead letter")
    assert dead[2] == b"dies" and dead[1].headers["x-death"][0]["reason"] == "rejected"


def without_a_broker(running, port):
    """It lives on, and is not ready: no restart, and no client."""
    running.cable.cut()
    until(lambda: running.probe("readinessProbe") == 503, running.log.read_text)
    assert running.probe("livenessProbe") == 200
    with pytest.raises(pika.exceptions.AMQPError):
        connect(port)
    running.cable.mend()
    until(lambda: running.probe("readinessProbe") == 200, running.log.read_text)
