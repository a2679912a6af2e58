"""Who rejected a message, and why it died: in the dead letter on request, and shown of the last ones, also live."""

import base64
import json
import urllib.parse
import urllib.request
from types import SimpleNamespace

import pika
import pytest

from lab import DEADLINE, PATIENT, until
from own import own  # noqa: F401
from test_dead_letters import ask

pytestmark = [pytest.mark.once, pytest.mark.proxied]

NAME = "worker \u00fc <1>"


@pytest.fixture
def stamping(own):  # noqa: F811
    own.restart(stamp="true")
    return own


def worker(own, orders, dead):  # noqa: F811
    """A connection with a name, and a channel; it has declared its queue. Of who has not, the broker makes the dead letters, and knows nobody."""
    login = own.via.broker.parameters.credentials
    named = pika.ConnectionParameters(*own.proxy.address, own.via.vhost, login, client_properties={"connection_name": NAME}, **PATIENT)
    connection = pika.BlockingConnection(named)
    channel = connection.channel()
    channel.queue_declare(orders, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    return connection, channel


def queues(own, **dead):  # noqa: F811
    """A queue whose messages go to another one when they die."""
    dead = own.queue("dead", **dead)
    return own.queue("orders", x_dead_letter_exchange="", x_dead_letter_routing_key=dead), dead


def reject(channel, queue):
    got = until(lambda: next((got for got in [channel.basic_get(queue)] if got[0]), None), f"a message in {queue}")
    channel.basic_reject(got[0].delivery_tag, requeue=False)


def answer_of_deaths(own, user=None, rest="", **parameters):  # noqa: F811
    place = f"/api/v1/vhosts/{urllib.parse.quote(own.via.vhost, safe='')}/deaths{rest}"
    via = SimpleNamespace(broker=own.via.broker, proxy=own.proxy)
    return ask(via, place, user, parameters=list(parameters.items()))[:2]


def deaths(own, user=None, **more):  # noqa: F811
    status, answer = answer_of_deaths(own, user, **more)
    assert status == 200, answer
    return answer


def listen(own):  # noqa: F811
    """A live answer, as it comes."""
    login = own.via.broker.parameters.credentials
    place = f"/api/v1/vhosts/{urllib.parse.quote(own.via.vhost, safe='')}/deaths"
    request = urllib.request.Request("http://%s:%d" % own.proxy.admin + place, headers={"Accept": "text/event-stream"})
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode())
    return urllib.request.urlopen(request, timeout=DEADLINE)


def event(answer):
    """The fields of the next event."""
    fields = {}
    while line := answer.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        fields[name] = value
    return fields


def test_a_dead_letter_says_who_rejected_its_message(stamping):
    orders, dead = queues(stamping)
    connection, channel = worker(stamping, orders, dead)
    stamping.publish(orders)
    reject(channel, orders)
    by = stamping.get(dead)[1].headers["x-rejected-by"]
    user = stamping.via.broker.user
    assert by.pop("held-ms") >= 0 and by.pop("time")
    assert by == {"connection": NAME, "user": user, "host": "127.0.0.1", "queue": orders}, "it was got"

    stamping.publish(orders)
    channel.basic_consume(orders, lambda channel, method, *_: channel.basic_nack(method.delivery_tag, requeue=False), consumer_tag="tag 1")
    until(lambda: stamping.depth(dead) == 1, "it died", pause=lambda: connection.process_data_events(time_limit=0.05))
    assert stamping.get(dead)[1].headers["x-rejected-by"]["consumer"] == "tag 1"
    connection.close()


def test_it_is_about_the_last_death_alone(stamping):
    """Rejected, and then expired in the queue behind."""
    last = stamping.queue("last")
    orders, dead = queues(stamping, x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=last)
    stamping.publish(orders)
    reject(stamping.channel, orders)
    headers = stamping.get(last)[1].headers
    assert [death["reason"] for death in headers["x-death"]] == ["expired", "rejected"]
    assert "x-rejected-by" not in headers


def test_nobody_asked_so_nothing_is_said(own):  # noqa: F811
    orders, dead = queues(own)
    own.publish(orders, headers={"x-rejected-by": "me"})
    reject(own.channel, orders)
    assert own.get(dead)[1].headers["x-rejected-by"] == "me"
    until(lambda: deaths(own)["deaths"], "it is remembered")
    (death,) = deaths(own)["deaths"]
    assert death["rejected-by"]["user"] == own.via.broker.user, death


def test_what_dies_is_shown_live_and_goes_on(own):  # noqa: F811
    orders, dead = queues(own)
    connection, channel = worker(own, orders, dead)
    with listen(own) as answer:
        begun = event(answer)
        own.publish(orders, b"four")
        reject(channel, orders)
        told = event(answer)
        assert told["event"] == "death" and int(told["id"]) > int(begun["id"]), told
        death = json.loads(told["data"])
        assert (death["queue"], death["reason"], death["routing-key"], death["octets"], death["outcome"]) == (orders, "rejected", dead, 4, "confirmed"), death
        assert death["rejected-by"]["connection"] == NAME, death
    own.publish(orders)
    reject(channel, orders)
    until(lambda: len(deaths(own)["deaths"]) == 2, "both are remembered")
    after = deaths(own, after=told["id"])
    assert [death["number"] for death in after["deaths"]] == [after["next"]] and not after["missed"], after
    (rate,) = deaths(own, rest="/rates")["rates"]
    assert (rate["queue"], rate["reason"], sum(rate["per-minute"])) == (orders, "rejected", 2), rate
    with listen(own) as answer:
        event(answer)
        for each in (connection, own.connection):
            each.close()
        own.proxy.process.terminate()
        assert answer.read() == b"", "it ends with the proxy"
    own.proxy.process.wait(DEADLINE)


def test_who_may_not_read_a_queue_does_not_see_what_dies_in_it(own):  # noqa: F811
    secret, other = (own.queue(name, x_dead_letter_exchange="", x_dead_letter_routing_key="own-nowhere") for name in ("secret", "other"))
    for queue in (secret, other):
        own.publish(queue)
        reject(own.channel, queue)
    until(lambda: len(deaths(own)["deaths"]) == 2, "both died")
    seen = {user: [death["queue"] for death in deaths(own, user)["deaths"]] for user in ("all-rights", "no-secrets")}
    assert seen == {"all-rights": [secret, other], "no-secrets": [other]}
    status, answer = answer_of_deaths(own, "stranger")
    assert status == 403 and "access to vhost" in answer["detail"], answer
    assert [rate["queue"] for rate in deaths(own, "no-secrets", rest="/rates")["rates"]] == [other]
