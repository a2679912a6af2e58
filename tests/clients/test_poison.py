"""What the intake cannot or must not publish ends in the parking queue, and nothing behind it has to wait for that (10.2)."""

import uuid

import amqp10
import pika
import pytest

from lab import until
from own import INTAKE, PARKED, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

both_intakes = pytest.mark.parametrize("own", ["quorum", "classic"], indirect=True)


@pytest.mark.parametrize("before, kind", [(1, "classic"), (300, "classic"), (300, "quorum")])
def test_a_message_that_no_consumer_can_have_is_shed(own, before, kind):
    """RabbitMQ 4 closes the connection of a 0-9-1 consumer at each delivery of an AMQP 1.0 message with a `uuid` property. So nobody can reject
    it by 0-9-1: it only dies by itself."""
    if not own.via.broker.is_4x:
        pytest.skip("AMQP 1.0 is a plugin on 3.x")
    behind = 200
    sink = own.queue("sink")
    source = own.queue("source", x_queue_type=kind, x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
    login = own.via.broker.parameters.credentials
    sender = amqp10.Connection(own.via.broker.address, own.via.vhost, login.username, login.password)
    bodies = [b"%d" % number for number in range(before + behind)]
    # Behind the first, which lives the longest, all die at once (1.2): the intake finds them as one heap.
    good = [amqp10.message(body, ttl=1 if number else 2000) for number, body in enumerate(bodies)]
    poison = amqp10.message(b"poison", ttl=1, id=amqp10.uuid(uuid.uuid4()))
    sender.publish(source, *good[:before], poison, *good[before:])
    sender.close()

    until(lambda: own.depth(sink) >= len(bodies), lambda: f"{own.depth(sink)} of {len(bodies)} arrived; {own.losses()} losses",
          progress=lambda: (own.depth(sink), min(own.losses(), 21)))
    until(lambda: own.depth(PARKED) == 1, "the poison parked")
    until(lambda: own.depth(INTAKE) == 0, "intake is empty")
    print(f"{own.losses()} losses")
    assert 1 <= own.losses() <= 21
    arrived = [own.channel.basic_get(sink, auto_ack=True)[2] for _ in range(own.depth(sink))]
    assert set(arrived) == set(bodies)
    assert own.depth(PARKED) == 1, "none of the others"


@both_intakes
def test_a_cycle_of_at_least_once_is_parked(own):
    """It must not be dropped (6.3)."""
    name = f"{PREFIX}-cycle"
    own.queue(
        "cycle", x_queue_type="quorum", x_message_ttl=1, x_dead_letter_strategy="at-least-once",
        x_dead_letter_exchange="", x_dead_letter_routing_key=name)
    own.channel.basic_publish("", name, b"round and round", pika.BasicProperties(message_id="the cycle"))
    [(_, properties, body)] = own.parked(1)
    assert (properties.message_id, body) == ("the cycle", b"round and round")
    deaths = [(death["queue"], death["reason"], death["count"]) for death in properties.headers["x-death"]]
    assert deaths == [(name, "expired", 1)]
    assert (properties.headers["x-parked-exchange"], properties.headers["x-parked-cause"]) == ("", "cycle")


@both_intakes
def test_what_is_no_signal_is_parked(own):
    """Whoever may write to the default exchange reaches the intake queue, past the proxy; that gives no rights."""
    sink = own.queue("sink")
    forged = {"x-death": [{"queue": "q", "reason": "expired", "exchange": "", "routing-keys": [sink], "count": 1}]}
    with own.via.direct.channel() as channel:
        for number, headers in enumerate([None, {}, {"x-death": "none"}, {"x-death": []}, forged]):
            channel.basic_publish("", INTAKE, b"%d" % number, pika.BasicProperties(headers=headers))
    assert [body for _, _, body in own.parked(5)] == [b"%d" % number for number in range(5)]
    until(lambda: own.depth(INTAKE) == 0, "intake is empty")
    assert own.depth(sink) == 0


@pytest.mark.parametrize("tag", ["impersonator", ""])
def test_a_foreign_user_id_among_others(own, tag):
    """8.1: with the tag the proxy's user may publish it as it is; without, consumers behind the proxy see it all the same. Neither holds up others."""
    broker, vhost = own.via.broker, own.via.vhost
    broker.eval(f'rabbit_auth_backend_internal:set_tags(<<"stranger">>, [{tag}], <<"tests">>), '
               f'rabbit_auth_backend_internal:set_permissions(<<"stranger">>, <<"{vhost}">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>).')
    own.restart("stranger")
    sent = [None, broker.user] * 20
    for reason, limits in (("rejected", {}), ("expired", {"x_message_ttl": 1})):
        sink = own.queue(f"{reason}-sink")
        source = own.queue(reason, x_dead_letter_exchange="", x_dead_letter_routing_key=sink, **limits)
        for number, name in enumerate(sent):
            own.channel.basic_publish("", source, b"%d" % number, pika.BasicProperties(user_id=name))
        for _ in sent if reason == "rejected" else []:
            own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
        until(lambda: own.depth(sink) == len(sent), lambda: f"{own.depth(sink)} of {len(sent)} arrived; {own.depth(PARKED)} parked")
        arrived = {int(body): properties for _, properties, body in (own.channel.basic_get(sink, auto_ack=True) for _ in sent)}
        assert [arrived[number].user_id for number in range(len(sent))] == sent
        assert not any(name.startswith("x-dlx-proxy") for properties in arrived.values() for name in properties.headers)
    broker.eval(f'rabbit_auth_backend_internal:clear_permissions(<<"stranger">>, <<"{vhost}">>, <<"tests">>).')


def test_counts_that_are_as_high_as_they_get_stay_there(own):
    """3.x would go on below zero (4.4)."""
    sink = own.queue("sink")
    source = own.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=sink)
    most = 2**63 - 1
    death = {"count": most, "reason": "rejected", "queue": source, "exchange": "", "routing-keys": [source]}
    own.channel.basic_publish("", source, b"often", pika.BasicProperties(headers={"x-death": [death]}))
    own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    assert [death["count"] for death in own.get(sink)[1].headers["x-death"]] == [most]


def test_the_oldest_deaths_are_forgotten(own):
    """A way through more queues than `max-history`, twice: the newest are kept, with their counts, and the first one in its own headers."""
    own.restart(max_history=4)
    queues = [f"{PREFIX}-q{number}" for number in range(6)]
    reasons = ["rejected", "expired", "rejected", "rejected", "expired", "rejected"]
    for number, (queue, reason) in enumerate(zip(queues, reasons)):
        limits = {"x_message_ttl": 1} if reason == "expired" else {}
        own.queue(f"q{number}", x_dead_letter_exchange="", x_dead_letter_routing_key=queues[(number + 1) % 6], **limits)
    own.channel.basic_publish("", queues[0], b"round")
    seen = []
    for lap in range(2):
        for queue, reason in zip(queues, reasons):
            if reason == "rejected":
                got = own.get(queue)
                headers = got[1].headers or {}
                assert {(death["queue"], death["count"]) for death in headers.get("x-death", [])} == {(name, 1) for name in seen[-4:]}
                assert headers.get("x-death", [{}])[0].get("queue") == (seen or [None])[-1]
                assert headers.get("x-first-death-queue") == (queues[0] if seen else None)
                own.channel.basic_reject(got[0].delivery_tag, requeue=False)
            seen.append(queue)
    # Of those that remain the count goes on.
    own.channel.queue_delete(queues[2])
    own.queue("q2", x_dead_letter_exchange="", x_dead_letter_routing_key=queues[1])
    got = own.get(queues[0])
    own.channel.basic_reject(got[0].delivery_tag, requeue=False)
    for lap in range(1, 8):
        got = own.get(queues[2])
        deaths = got[1].headers["x-death"]
        counts = {death["queue"]: death["count"] for death in deaths}
        assert len(deaths) <= 4 and deaths[0]["queue"] == queues[1]
        assert counts[queues[1]] == lap and counts.get(queues[2], 0) == lap - 1
        own.channel.basic_reject(got[0].delivery_tag, requeue=False)
