"""Who rejected a message, and why it died: in the dead letter on request, and shown of the last ones, also live."""

import json
import re

import pytest

from console import answer, ask, ends, live, of_vhost, order
from lab import DEADLINE, REPOSITORY, until

pytestmark = pytest.mark.any_broker

NAME = "worker \u00fc <1>"


def queues(own):
    """A queue whose messages go to another one when they die."""
    dead = own.queue("dead")
    return own.queue("orders", dlx="", dlk=dead), dead


def deaths(own, user=None, rest="", **more):
    return answer(own.via, of_vhost(own.via, f"/deaths{rest}"), user, **more)


def listen(own):
    """A live answer, as it comes."""
    return live(own.via, of_vhost(own.via, "/deaths"), Accept="text/event-stream")


def event(live):
    """The fields of the next event."""
    fields = {}
    while line := live.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        fields[name] = value
    return fields


def named(own, orders, dead):
    """A channel of a connection with a name, which has declared its queue. Of who has not, the broker makes the dead letters, and knows nobody."""
    channel = own.via.connect(client_properties={"connection_name": NAME}).channel()
    own.queue("orders", channel=channel, dlx="", dlk=dead)
    return channel


def test_a_dead_letter_says_who_rejected_its_message(own):
    own.restart(stamp="true")
    orders, dead = queues(own)
    channel = named(own, orders, dead)
    own.publish("", orders)
    own.reject(orders, channel=channel)
    by = own.get(dead).properties.headers["x-rejected-by"]
    assert by.pop("held-ms") >= 0 and by.pop("time")
    assert by == {"connection": NAME, "user": own.via.broker.user, "host": "127.0.0.1", "queue": orders}, "it was got"
    own.publish("", orders)
    channel.basic_consume(orders, lambda channel, method, *_: channel.basic_nack(method.delivery_tag, requeue=False), consumer_tag="tag 1")
    until(lambda: own.depth(dead) == 1, "it died", pause=lambda: channel.connection.process_data_events(time_limit=0.05))
    assert own.get(dead).properties.headers["x-rejected-by"]["consumer"] == "tag 1"
    channel.connection.close()
    # It is about the last death alone: rejected, and then expired in the queue behind.
    behind = own.queue("behind", ttl=1, dlx="", dlk=dead)
    own.die(own.queue("first", dlx="", dlk=behind))
    headers = own.get(dead).properties.headers
    assert [death["reason"] for death in headers["x-death"]] == ["expired", "rejected"] and "x-rejected-by" not in headers


def copies(message):
    return (message.properties.headers or {}).get("x-copy-id")


def test_copies_of_one_message_have_one_id(own, tmp_path, monkeypatch):
    own.restart(stamp="true")
    dead = own.queue("dead")
    orders = own.queue("orders", kind="classic", dlx="", dlk=dead, retry_min=10)
    own.publish("", orders, b"a body", headers={"x-copy-id": "made up"})
    assert copies(own.give_back(orders)) is None, "it is no copy yet"
    returned = own.get(orders)
    own.channel.basic_nack(returned.method.delivery_tag, requeue=True)
    again = own.get(orders)
    assert copies(again) and copies(again) == copies(returned), "it keeps its id"
    own.channel.basic_reject(again.method.delivery_tag, requeue=False)
    own.die(orders)
    # As if each redrive were cut off between confirm and ack: what was sent back is still there, and goes back once more.
    letters = own.all_of(dead, 2)
    assert len({copies(again), *map(copies, letters)}) == 3, "each death has its own, and so have messages that look the same"
    for _, properties, body in letters * 2:
        with own.via.direct.channel() as channel:
            channel.basic_publish("", dead, body, properties)
    ends(own, order(own, dead), gone=4, stay={})
    (snippet,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/how-to/drop-doubles.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    processed = []
    names = {"process": processed.append}
    exec(snippet, names)  # pylint: disable=exec-used
    for _ in range(4):
        message = own.get(orders)
        assert copies(message) in map(copies, letters)
        names["on_message"](own.channel, *message)
    assert processed == [b"a body"] * 2


def test_what_dies_is_shown_live_and_goes_on(own):
    orders, dead = queues(own)
    channel = named(own, orders, dead)
    with listen(own) as stream:
        begun = event(stream)
        own.publish("", orders, b"four", headers={"x-rejected-by": "me"})
        own.reject(orders, channel=channel)
        told = event(stream)
        assert told["event"] == "death" and int(told["id"]) > int(begun["id"]), told
        death = json.loads(told["data"])
        assert (death["queue"], death["reason"], death["routing-key"], death["bytes"], death["outcome"]) == (orders, "rejected", dead, 4, "confirmed"), death
        assert death["rejected-by"]["connection"] == NAME, death
    assert own.get(dead).properties.headers["x-rejected-by"] == "me", "nobody asked, so nothing is said"
    own.die(orders)
    until(lambda: len(deaths(own)["deaths"]) == 2, "both are remembered")
    after = deaths(own, after=told["id"])
    assert [death["number"] for death in after["deaths"]] == [after["next"]] and not after["missed"], after
    (rate,) = deaths(own, rest="/rates")["rates"]
    assert (rate["queue"], rate["reason"], sum(rate["per-minute"])) == (orders, "rejected", 2), rate
    with listen(own) as stream:
        event(stream)
        channel.connection.close()
        own.via.close()
        own.proxy.process.terminate()
        assert stream.read() == b"", "it ends with the proxy"
    own.proxy.process.wait(DEADLINE)


def test_who_may_not_read_a_queue_does_not_see_what_dies_in_it(own):
    secret, other = (own.queue(name, dlx="", dlk="own-nowhere") for name in ("secret", "other"))
    own.die(secret)
    own.die(other)
    until(lambda: len(deaths(own)["deaths"]) == 2, "both died")
    seen = {user: [death["queue"] for death in deaths(own, user)["deaths"]] for user in ("all-rights", "no-secrets")}
    assert seen == {"all-rights": [secret, other], "no-secrets": [other]}
    status, problem, _ = ask(own.via, of_vhost(own.via, "/deaths"), "stranger")
    assert status == 403 and "access to vhost" in problem["detail"], problem
    assert [rate["queue"] for rate in deaths(own, "no-secrets", rest="/rates")["rates"]] == [other]
