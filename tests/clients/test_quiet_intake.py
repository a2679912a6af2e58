"""An intake on whose channel nothing comes opens it anew. What dies meanwhile arrives all the same, once and in order."""

import pytest

from lab import Proxy, until
from own import INTAKE, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]


def channels(own):
    """Of the consumers of the intake queue."""
    listed = own.via.broker.ctl("-q", "list_consumers", "-p", own.via.vhost, "queue_name", "channel_pid")
    return {channel for queue, channel in (line.split("\t") for line in listed.splitlines()) if queue == INTAKE}


@pytest.mark.parametrize("own", ["quorum", "classic"], indirect=True)
def test_both_proxies_open_their_channels_anew_and_each_message_arrives_once(own, tmp_path):
    own.restart(intake_quiet="100ms")
    settings = {"DLX_PROXY_PREFIX": PREFIX, "DLX_PROXY_INTAKE_QUEUE_TYPE": own.kind, "DLX_PROXY_VHOSTS": own.via.vhost} | own.settings
    other = Proxy(own.upstream, "full", tmp_path / "other", **settings)
    try:
        other.wait_ready()
        until(lambda: own.metric("dlx_proxy_intake_consuming", other) == 1, other.text)
        sink = own.queue("sink")
        source = own.queue("source", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
        bodies = [b"%d" % number for number in range(60)]
        for burst in range(3):
            before = channels(own)
            until(lambda: len(now := channels(own)) == 2 and not now & before, "both have opened another channel")
            for body in bodies[burst * 20 : (burst + 1) * 20]:
                own.publish(source, body)
        until(lambda: own.depth(sink) >= len(bodies), lambda: f"{own.depth(sink)} have arrived", progress=lambda: own.depth(sink))
        arrived = [own.channel.basic_get(sink, auto_ack=True)[2] for _ in range(own.depth(sink))]
        assert arrived == bodies
        assert own.depth(INTAKE) == 0 and own.losses() == 0
    finally:
        other.stop()
