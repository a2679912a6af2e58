"""Verdicts: what a client says of a message before it rejects or returns it. The helper is that of docs/how-to/verdicts.md."""

import re
import time

import pika
import pytest

from lab import REPOSITORY, until
from scene import PARKED, policies

GUIDE = (REPOSITORY / "docs/how-to/verdicts.md").read_text()
exec(re.search(r"## pika\n\n```python\n(.*?)```", GUIDE, re.DOTALL)[1])  # verdict()
REASON, ERROR = "x-exception-message", "x-exception-stacktrace"


def unused(scene):
    return scene.via.proxy.event("verdict_unused")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_reason_is_in_the_dead_letter_and_in_its_group(scene, kind):
    dead = scene.queue("dead")
    queue = scene.queue("work", kind=kind, dlx="", dlk=dead)
    for body in (b"one", b"two", b"three"):
        scene.publish("", queue, body, headers={"own": "stays"})
    tags = [scene.get(queue).method.delivery_tag for _ in range(3)]
    verdict(scene.channel, tags[0], reason="no address", error="a trace\n" + "ö" * 5000, headers={"tenant": 7, "x-death": "mine"})
    verdict(scene.channel, tags[2], reason="bad JSON", delay_ms=60_000)
    scene.channel.basic_nack(tags[2], multiple=True, requeue=False)
    found = {body: properties.headers for _, properties, body in scene.all_of(dead, 3)}
    assert found[b"one"][REASON] == "no address" and found[b"one"]["tenant"] == 7
    assert found[b"one"][ERROR] == "a trace\n" + "ö" * 2044, "cut at 4096 bytes"
    assert found[b"one"]["x-death"][0]["queue"] == queue
    assert REASON not in found[b"two"] and found[b"three"][REASON] == "bad JSON"
    assert all(headers["own"] == "stays" for headers in found.values())


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_delay_beats_the_policy_and_a_verdict_ends_retries(scene, kind):
    dead = scene.queue("dead")
    queue = scene.queue("work", kind=kind, dlx="", dlk=dead, retry_min=60_000, multiplier=2, limit=2)
    scene.publish("", queue, b"again")
    for attempt in range(2):
        message = scene.get(queue)
        assert (message.properties.headers or {}).get(REASON) == (f"try {attempt - 1}" if attempt else None)
        verdict(scene.channel, message.method.delivery_tag, reason=f"try {attempt}", delay_ms=300)
        returned = time.monotonic()
        scene.channel.basic_nack(message.method.delivery_tag, requeue=True)
        until(lambda: scene.depth(queue) == 1, "it is back")
        assert 0.3 <= time.monotonic() - returned < 30
    message = scene.get(queue)
    scene.channel.basic_nack(message.method.delivery_tag, requeue=True)
    (_, properties, _), = scene.all_of(dead, 1)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit" and properties.headers[REASON] == "try 1", "the last one"

    scene.publish("", queue, b"poison")
    message = scene.get(queue)
    verdict(scene.channel, message.method.delivery_tag, reason="bad JSON", dead=True)
    scene.channel.basic_reject(message.method.delivery_tag, requeue=True)
    (_, properties, body), = scene.all_of(dead, 1)
    assert (body, properties.headers["x-death"][0]["reason"], properties.headers[REASON]) == (b"poison", "rejected", "bad JSON")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_delay_where_the_queue_has_none(scene, kind):
    """Its neighbours come back at once, as the broker does it."""
    dead = scene.queue("dead")
    queue = scene.queue("work", kind=kind, dlx="", dlk=dead)
    scene.fill(queue, [b"busy", b"other"])
    busy, other = scene.get(queue), scene.get(queue)
    verdict(scene.channel, busy.method.delivery_tag, delay_ms=1000, headers={"tenant": 7})
    returned = time.monotonic()
    scene.channel.basic_nack(other.method.delivery_tag, multiple=True, requeue=True)
    until(lambda: scene.depth(queue) == 1, "the other one is back")
    assert scene.get(queue).body == b"other" and scene.channel.basic_get(queue)[0] is None
    until(lambda: scene.depth(queue) == 1, "it is back")
    back = scene.get(queue)
    assert time.monotonic() - returned >= 1 and back.body == b"busy"
    assert back.method.redelivered and back.properties.headers["tenant"] == 7
    assert (back.method.exchange, back.method.routing_key) == ("", queue)


def test_it_dies_where_nothing_names_a_target(own, tmp_path):
    """Parked, and not lost."""
    file = policies(tmp_path / "dlx-proxy.toml", own.via.vhost, limited=("^own-work", {"delivery-limit": 100}))
    own.restart(config=file)
    queue = own.queue("work")
    own.publish("", queue, b"poison")
    message = own.get(queue)
    verdict(own.channel, message.method.delivery_tag, reason="bad JSON", dead=True)
    own.channel.basic_nack(message.method.delivery_tag, requeue=True)
    (_, properties, body), = own.all_of(PARKED, 1)
    assert (body, properties.headers[REASON]) == (b"poison", "bad JSON")


def test_what_has_no_effect_is_answered_and_counted(scene):
    before = unused(scene)
    queue = scene.made("not-handled")
    scene.publish("", queue)
    message = scene.get(queue)
    verdict(scene.channel, 4711, reason="unknown")
    verdict(scene.channel, "4x", reason="no tag")
    verdict(scene.channel, message.method.delivery_tag, reason="no copy", delay_ms=60_000)
    scene.channel.basic_nack(message.method.delivery_tag, requeue=True)
    scene.reject(queue)
    until(lambda: unused(scene) == before + 3, lambda: f"{unused(scene)} of {before + 3}")
    with scene.connection.channel() as other:
        other.tx_select()
        verdict(other, 1, reason="tx")
        other.tx_rollback()
    assert unused(scene) == before + 4


def test_a_channel_and_a_connection_take_their_verdicts_along(scene):
    """Equal tags of a new one have none, after 10,000 of them."""
    dead = scene.queue("dead")
    queue = scene.queue("work", dlx="", dlk=dead)
    scene.publish("", queue, b"first")
    connection = scene.via.connect()
    channel = connection.channel()
    assert scene.get(queue, channel).method.delivery_tag == 1
    for number in range(10_000):
        verdict(channel, 1, reason=f"{number}")
    channel.close()
    channel = connection.channel()
    assert scene.get(queue, channel).method.delivery_tag == 1
    verdict(channel, 1, reason="of this connection")
    connection.close()
    before = unused(scene)
    with scene.via.connect() as connection:
        scene.reject(queue, channel=connection.channel())
    (_, properties, _), = scene.all_of(dead, 1)
    assert REASON not in properties.headers and unused(scene) == before


def test_a_user_without_rights_may_judge(scene):
    """Where the broker would close the channel."""
    dead = scene.queue("dead")
    queue = scene.queue("secret", dlx="", dlk=dead)
    connection = scene.via.connect(user="no-secrets")
    channel = connection.channel()
    channel.queue_unbind(queue, "dlx-proxy.verdict", "1", {"reason": "mine"})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
        channel.exchange_declare("dlx-proxy.verdict")
    assert refusal.value.reply_code == 403 and "dlx-proxy.verdict" in refusal.value.reply_text
    connection.close()


def test_without_a_proxy_nothing_happens(scene):
    """S9.7: what the broker answers."""
    properties = scene.via.direct._impl.server_properties
    assert "dlx_proxy" not in properties
    through = scene.connection._impl.server_properties
    assert through == properties | {"dlx_proxy": through["dlx_proxy"]} and re.fullmatch(r"\d+\.\d+\.\d+.*", through["dlx_proxy"])
    with scene.via.direct.channel() as channel:
        verdict(channel, 1, reason="nobody listens")
        for queue in (scene.queue("there"), "missing"):
            channel.queue_unbind(queue, "dlx-proxy.verdict", "1", {"reason": "why", "delay-ms": 1000, "dead": True, "headers": {"a": 1}})
