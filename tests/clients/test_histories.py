"""4.5: what is left of the deaths that a client publishes, when the message dies again by the broker's own hand."""

import datetime

import pytest

TIME = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
DEATH = {"count": 7, "reason": "maxlen", "queue": "older", "time": TIME, "exchange": "ex", "routing-keys": ["k", "c"], "mine": {"z": 1, "a": "2"}}
FIRST, LAST = (f"x-{which}-death-" for which in ("first", "last"))
PUBLISHED = {
    "x-death": [DEATH],
    FIRST + "reason": "maxlen", FIRST + "queue": "first", FIRST + "exchange": "fx",
    LAST + "reason": "maxlen", LAST + "queue": "last", LAST + "exchange": "lx",
    "x-mine": {"stays": "as it is"},
}


def of_a_death(which, queue, reason):
    return {which + "reason": reason, which + "queue": queue, which + "exchange": ""}


def without_counts(message):
    """The headers, but for those that a quorum queue adds."""
    return {name: value for name, value in message.properties.headers.items() if name not in ("x-delivery-count", "x-acquired-count")}


@pytest.mark.every_broker
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_a_broker_keeps_of_what_a_client_says(scene, kind):
    """4.x keeps all of it while nothing dies, and nothing of it afterwards: what died before has to stand in a private header, from the first death on."""
    dead = scene.made("dead", kind=kind)
    source = scene.made("source", kind=kind, dlx="", dlk=dead)
    channel = scene.via.direct.channel()
    # Twice: what the broker itself wrote is no better than what a client made up.
    headers = PUBLISHED
    for reason in ("rejected", "expired"):
        ttl = {"expiration": "300000" if reason == "rejected" else "1"}
        scene.publish("", source, channel=channel, headers=headers, **ttl)
        if reason == "rejected":
            for requeue in (True, False):
                message = scene.get(source, channel)
                told = without_counts(message)
                assert told == headers
                assert [list(entry) for entry in told["x-death"]] == [list(entry) for entry in headers["x-death"]], "in that order"
                channel.basic_reject(message.method.delivery_tag, requeue=requeue)
        message = scene.get(dead, channel)
        channel.basic_ack(message.method.delivery_tag)
        published, headers = headers, without_counts(message)
        if scene.via.broker.is_4x:
            entry = headers["x-death"][0]
            assert len(headers["x-death"]) == 1
            assert (entry["count"], entry["reason"], entry["queue"], entry["routing-keys"]) == (1, reason, source, [source])
            expected = of_a_death(FIRST, source, reason) | of_a_death(LAST, source, reason)
        else:
            assert len(headers["x-death"]) == len(published["x-death"]) + 1 and DEATH in headers["x-death"]
            expected = {name: value for name, value in PUBLISHED.items() if name.startswith((FIRST, LAST))}
        assert {name: headers[name] for name in expected} == expected
        assert headers["x-mine"] == PUBLISHED["x-mine"]
