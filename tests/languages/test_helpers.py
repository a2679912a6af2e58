"""Verdicts by several libraries, with the helpers of docs/how-to/verdicts.md. A library that recovers its connection sends none of them again."""

import re
import subprocess

import pika
import pytest

from lab import DEADLINE, REPOSITORY, until
from programs import HERE, LAB, java, javascript, python

VHOST = "verdicts"
COUNT = 10_000
CLOSE = f"""
    [rabbit_networking:close_connection(Pid, "the test") || Pid <- rabbit_networking:connections(),
        [{{vhost, <<"{VHOST}">>}}, {{client_properties, Properties}}] <- [rabbit_networking:connection_info(Pid, [vhost, client_properties])],
        {{_, _, Product}} <- [lists:keyfind(<<"product">>, 1, Properties)], not lists:member(Product, [<<"dlx-proxy">>, <<"the test">>])]."""
"""The connections of the programs."""
PROGRAMS = {
    "aio-pika": ("verdicts.py", lambda: python("verdicts.py")),
    "amqplib (Node.js)": ("verdicts.js", lambda: javascript("verdicts.js")),
    "Java and Spring": ("Verdicts.java", lambda: java("Verdicts")),
}


@pytest.fixture(scope="module")
def vhost(broker):
    broker.make([VHOST], [], [(broker.user, VHOST, ".*", ".*", ".*")])
    yield VHOST
    broker.unmake([VHOST], [])


@pytest.mark.parametrize("library", PROGRAMS)
def test_the_guide_has_the_helper_of_the_program(library):
    guide = (REPOSITORY / "docs/how-to/verdicts.md").read_text()
    (helper,) = re.findall(rf"## {re.escape(library)}\n\n```\w+\n(.*?)```", guide, re.DOTALL)
    words = lambda text: " ".join(text.split())
    assert words(helper) in words((HERE / PROGRAMS[library][0]).read_text())


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_verdict_counts_once_and_on_its_connection_alone(way, vhost, library):
    direct, through = way.urls(vhost)
    parameters = pika.URLParameters(direct)
    parameters.client_properties = {"product": "the test"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    unused = lambda: way.proxy.event("verdict_unused")
    before = unused()
    program = subprocess.Popen([str(word) for word in (*PROGRAMS[library][1](), through, COUNT)], cwd=LAB, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: declared(connection), "the program declares its queue", pause=0.1)
        for body in (b"first", b"second"):
            channel.basic_publish("", "work", body)
        assert '"judged"' in program.stdout.readline()
        way.broker.eval(CLOSE)
        assert '"done"' in program.stdout.readline()
        assert program.wait(DEADLINE) == 0
        until(lambda: depth(channel, "dead") == 2, "both are dead")
        said = {body: properties.headers for _, properties, body in (channel.basic_get("dead", auto_ack=True) for _ in range(2))}
        assert "x-exception-message" not in said[b"first"], "the verdicts went with their connection"
        assert said[b"second"]["x-exception-message"] == "no address"
        assert said[b"second"]["x-exception-stacktrace"] == ("a trace" * 600)[:4096] and said[b"second"]["tenant"] == 7
        assert unused() == before, "none was sent again"
    finally:
        program.kill()
        program.wait()
        for queue in ("work", "dead"):
            channel.queue_delete(queue)
        connection.close()


def declared(connection):
    try:
        with connection.channel() as channel:
            return channel.queue_declare("work", passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return None


def depth(channel, queue):
    return channel.queue_declare(queue, passive=True).method.message_count
