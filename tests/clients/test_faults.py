"""A connection of the proxy is killed, or an exchange is missing, in the middle of many deaths: nothing is lost."""

import subprocess
import time
from collections import Counter

import pika
import pytest

from lab import until

pytestmark = pytest.mark.once

KILL = """
Wait = fun F(0) -> exit(late); F(N) ->
    case rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{go}">>)) of {{ok, _}} -> go; _ -> timer:sleep(1), F(N - 1) end end,
io:format("ready~n"),
Wait(60000),
length([rabbit_networking:close_connection(Pid, "a test") || Pid <- rabbit_networking:connections(),
    {{client_properties, Properties}} <- rabbit_reader:info(Pid, [client_properties]),
    {{<<"connection_name">>, longstr, <<"{name}">>}} <- Properties]).
"""
"""What `rabbitmqctl close_connection` does, at the moment when a queue named `go` is made: to start a rabbitmqctl takes too long."""


class Assassin:
    """A rabbitmqctl that waits for `strike` and then closes the connection of that name."""

    def __init__(self, scene, name):
        self.scene, self.go = scene, scene.name("go")
        words = KILL.format(vhost=scene.via.vhost, go=self.go, name=f"{name} {scene.via.vhost}")
        self.process = subprocess.Popen(
            [*scene.via.broker.control, "-q", "eval", words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.process.stdout.readline()
        assert said == "ready\n", said + self.process.communicate()[0]

    def strike(self):
        self.scene.queue("go")

    def count(self):
        """How many it killed."""
        said, _ = self.process.communicate(timeout=60)
        return said.strip()


def publish_many(scene, queue, count):
    """On a channel that stays: 3.10 forgets what a closed one has not yet handed to a quorum queue."""
    for number in range(count):
        scene.channel.basic_publish("", queue, b"%d" % number)


def reject_all(scene, queues, count, at=None, then=None):
    """Reject `count` messages as they come; call `then` when `at` of them are rejected."""
    channel = scene.connection.channel()
    rejected = []

    def reject(channel, method, _properties, _body):
        channel.basic_reject(method.delivery_tag, requeue=False)
        rejected.append(method.delivery_tag)
        if len(rejected) == at:
            then()

    channel.basic_qos(prefetch_count=500)
    for queue in queues:
        channel.basic_consume(queue, reject)
    until(lambda: len(rejected) >= count, lambda: f"{len(rejected)} rejected", 60, lambda: scene.connection.process_data_events(time_limit=0.05))
    return channel


def all_of(arrived, count):
    """Everything arrived, some perhaps twice: how many of those."""
    counts = Counter(body for _, _, body in arrived)
    assert set(counts) == {b"%d" % number for number in range(count)}
    return sum(counts.values()) - count


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_publisher_killed_amid_rejects(scene, kind):
    count = 10_000
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx)
    assassin = None if scene.via.is_direct else Assassin(scene, "dlx-proxy publisher")
    publish_many(scene, source, count)
    channel = reject_all(scene, [source], count, at=count // 2, then=assassin.strike if assassin else lambda: None)
    sink.wait(lambda arrived: len({body for _, _, body in arrived}) == count, f"{count} messages", deadline=60)
    if assassin:
        assert assassin.count() == "1"
    channel.close()
    assert scene.depth(source) == 0
    print(f"{all_of(sink.arrived, count)} duplicates")
    assert {got[1].headers["x-death"][0]["count"] for got in sink.arrived} == {1}


@pytest.mark.parametrize("victim", ["dlx-proxy publisher", "dlx-proxy intake"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_link_killed_amid_expiries(scene, kind, victim):
    count = 5_000
    dlx, sink = scene.target()
    source = scene.queue("source", kind=kind, dlx=dlx, ttl=1)
    assassin = None if scene.via.is_direct else Assassin(scene, victim)
    publish_many(scene, source, count)
    if assassin:
        sink.wait(lambda arrived: len(arrived) > 100, "the first messages")
        assassin.strike()
    sink.wait(lambda arrived: len({body for _, _, body in arrived}) == count, f"{count} messages", deadline=60)
    if assassin:
        assert assassin.count() == "1"
        intake = scene.via.direct.channel()
        until(lambda: intake.queue_declare("dlx-proxy.intake", passive=True).method.message_count == 0, "intake is empty")
        intake.close()
    print(f"{all_of(sink.arrived, count)} duplicates")


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_missing_exchange_disturbs_no_other(scene, reason):
    """A publish to it closes a channel (8.2), and with it all confirms that are due there."""
    count = 1000
    dlx, sink = scene.target()
    other = scene.sink("other")
    sources = [scene.source("one", reason, dlx=dlx), scene.source("two", reason, dlx="", dlk=other.queue), scene.source("bad", reason, dlx=scene.name("missing"))]
    for number in range(count):
        for queue in sources:
            scene.channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(message_id=f"{queue}-{number}"))
    if reason == "rejected":
        reject_all(scene, sources, 3 * count).close()
    for each in (sink, other):
        each.wait(lambda arrived: len(arrived) >= count, f"{count} messages")
        assert [body for _, _, body in each.arrived] == [b"%d" % number for number in range(count)]
    if scene.by(reason).parks:
        parked = lambda: sum(bool(scene.via.parked(f"{sources[2]}-{number}")) for number in range(count))
        until(lambda: parked() == count, lambda: f"{parked()} parked")



def test_an_alarm_amid_rejects(scene):
    """The broker stops reading from publishers: rejects pile up until the client is read no more. With a heartbeat of 1 s its
    connection lives through that, and in the end everything arrives."""
    count, via = 6_000, scene.via
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    publish_many(scene, source, count)
    until(lambda: scene.depth(source) == count, "all published")
    usual = via.broker.ctl("-q", "eval", "vm_memory_monitor:get_vm_memory_high_watermark().").strip()
    client = via.connect(heartbeat=1)
    scene.queue("source", dlx=dlx, channel=client.channel())
    channel = client.channel()
    rejected = []

    def reject(channel, method, _properties, _body):
        channel.basic_reject(method.delivery_tag, requeue=False)
        rejected.append(method.delivery_tag)

    via.broker.ctl("-q", "set_vm_memory_high_watermark", "0.00001")
    try:
        until(lambda: "memory" in via.broker.ctl("-q", "eval", "rabbit_alarm:get_alarms()."), "the alarm")
        channel.basic_consume(source, reject)
        end = time.monotonic() + 8
        while time.monotonic() < end:
            client.process_data_events(time_limit=0.1)
    finally:
        via.broker.ctl("-q", "set_vm_memory_high_watermark", usual)
    work = lambda: client.process_data_events(time_limit=0.05)
    until(lambda: len(rejected) >= count, lambda: f"{len(rejected)} rejected", 30, work)
    sink.wait(lambda arrived: len({body for _, _, body in arrived}) == count, f"{count} messages", deadline=60)
    client.close()
    assert scene.depth(source) == 0
    print(f"{all_of(sink.arrived, count)} duplicates")
