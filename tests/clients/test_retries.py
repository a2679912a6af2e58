"""Retries: what a client returns comes back later, as it was, so many times; then it dies. (Under faults, with policies, when queues change:
tests/simulation, tests/faults; real loops: tests/languages.)"""

import copy
import datetime
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import Via, until
from scene import PARKED, PREFIX, Scene, one_of, policies, user

EVERYTHING = {
    "content_type": "text/plain", "content_encoding": "utf-8", "priority": 3, "correlation_id": "correlation", "reply_to": "answers",
    "message_id": "an id", "timestamp": 1_600_000_000, "type": "order", "app_id": "tests", "cluster_id": "cluster",
    "headers": {"CC": ["a.copy"], "text": "zwölf", "list": [1, "two", [-3], {"four": 4}]},
}


def looks(message):
    """All that a consumer sees, but for how often it has come back."""
    headers = {name: value for name, value in (message.properties.headers or {}).items() if name not in ("x-delivery-count", "x-acquired-count")}
    rest = {name: value for name, value in vars(message.properties).items() if name != "headers"}
    return message.method.exchange, message.method.routing_key, headers, rest, message.body


def counted(message):
    """What says how often a message has come back."""
    headers = message.properties.headers or {}
    return {name: headers[name] for name in ("x-delivery-count", "x-acquired-count") if headers.get(name)}


def counts(broker, returns):
    """That, where each was a nack."""
    return {("x-acquired-count" if broker.is_from(4, 3) else "x-delivery-count"): returns} if returns else {}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_comes_back_as_it_was_and_dies_in_the_end(scene, kind):
    dlx, dead, exchange = scene.exchange("dlx"), scene.queue("dead"), scene.exchange("in", "topic")
    scene.bind(dead, dlx)
    queue = scene.queue("work", kind=kind, dlx=dlx, retry_min=100, multiplier=2, limit=3)
    scene.bind(queue, exchange, "a.#")
    scene.publish(exchange, "a.key", b"again", **EVERYTHING | {"expiration": "600000"})
    first, returned = None, None
    for attempt in range(4):
        message = scene.get(queue)
        if attempt:
            assert time.monotonic() - returned >= 0.1 * 2 ** (attempt - 1), "never early"
        first = first or looks(message)
        assert looks(message) == first and first[:2] == (exchange, "a.key") and message.method.redelivered == (attempt > 0)
        if kind == "classic":
            assert counted(message) == counts(scene.via.broker, attempt)
        returned = time.monotonic()
        scene.channel.basic_nack(message.method.delivery_tag, requeue=True)
    method, properties, body = scene.get(dead)
    assert (method.exchange, method.routing_key, body) == (dlx, "a.key", b"again")
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["count"], death["queue"], death["exchange"]) == ("delivery_limit", 1, queue, exchange)
    assert (death["routing-keys"], death["original-expiration"]) == (["a.key", "a.copy"], "600000")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_list_of_delays_is_kept(scene, kind):
    """Each by itself, never early; the last one repeats. And no broker refuses another list."""
    dead = scene.queue("dead")
    more = {"kind": kind, "dlx": "", "dlk": dead, "limit": 3}
    work = scene.queue("work", delays=["1s", 2500], **more)
    scene.publish("", work)
    returned = None
    for delay in (0, 1, 2.5, 2.5):
        message = scene.get(work)
        assert not delay or time.monotonic() - returned >= delay, "never early"
        returned = time.monotonic()
        scene.channel.basic_nack(message.method.delivery_tag, requeue=True)
    assert scene.get(dead).properties.headers["x-death"][0]["reason"] == "delivery_limit"
    assert scene.queue("work", delays="100ms", **more) == work
    scene.publish("", work)
    scene.give_back(work)
    scene.get(work)


def test_a_message_keeps_its_priority(scene):
    """What is more urgent overtakes it while it is away, and what is less does not."""
    queue = scene.queue("work", kind="classic", max_priority=5, retry_min=100)
    scene.publish("", queue, b"returned", priority=3)
    scene.give_back(queue)
    scene.publish("", queue, b"later", priority=1)
    scene.publish("", queue, b"sooner", priority=5)
    scene.has(queue, 3)
    assert [(body, properties.priority) for _, properties, body in (scene.get(queue) for _ in range(3))] == [(b"sooner", 5), (b"returned", 3), (b"later", 1)]


@pytest.mark.parametrize("made", [True, False], ids=["there", "missing"])
def test_a_user_that_may_not_send_away(own, made):
    """Returns stay unsettled, uncounted, and a line says why. Limits and dead letters go on."""
    own.stop()
    if not made:
        own.delete(exchanges=[f"{PREFIX}.delay", f"{PREFIX}.due"])
    with user(own.via, "no-delays", rf"^(?!{PREFIX}\.delay)", rf"^(?!{PREFIX}\.delay)") as no_delays:
        own.start(user=no_delays)
        dead = own.queue("dead")
        work = own.queue("work", retry_min=100, limit=3, dlx="", dlk=dead)
        limited, brief = own.queue("limited", limit=1, dlx="", dlk=dead), own.queue("brief", ttl=1, dlx="", dlk=dead)
        own.publish("", work, b"rejected")
        for attempt in range(2):
            message = own.give_back(work)
            assert message.method.redelivered == (attempt > 0) and not counted(message)
            refusals = lambda: own.metric("dlx_proxy_retries_total", queue=work, outcome="refused")
            before = refusals()
            until(lambda: refusals() >= before + 2, "it is tried again")
            assert own.depth(work) == 0
            own.channel.close()  # With its channel it goes back.
        own.reject(work)
        own.publish("", limited, b"limit")
        for returned in range(2):
            assert counted(own.give_back(limited)) == counts(own.via.broker, returned)
        own.publish("", brief, b"expired")
        died = {body: properties.headers["x-death"][0]["reason"] for _, properties, body in (own.get(dead) for _ in range(3))}
        assert died == {b"rejected": "rejected", b"limit": "delivery_limit", b"expired": "expired"}
        said = [line for line in own.proxy.text().splitlines() if "could not be published to its delay queue" in line]
        assert said and f"queue={work}" in said[0] and "forbidden" in said[0], said
        assert own.metric("dlx_proxy_link_failures_total", link="intake") == 0, "a refusal costs no link"
        own.stop()
    own.start()


@pytest.mark.parametrize("on_crash, expected", [("requeue", []), ("count-oldest", [b"0"]), ("count-all", [b"0", b"1", b"2"])])
def test_a_client_that_is_lost(own, tmp_path, on_crash, expected):
    """What it had not settled comes back to its queue; what counts, later. A policy says so of a queue that nobody declared here."""
    definition = {"delayed-retry-min": 100, "delivery-limit": 2, "on-crash": on_crash}
    own.restart(config=policies(tmp_path / "dlx-proxy.toml", own.via.vhost, orders=("^own-orders", definition)))
    queue, lost = own.fill(own.made("orders"), [b"0", b"1", b"2"]), own.via.connect()
    channel = lost.channel()
    for _ in range(3):
        own.get(queue, channel)
    lost._impl._transport._sock.shutdown(2)  # pika would say goodbye
    came = {message.body: message for message in (own.get(queue) for _ in range(3))}
    assert sorted(came) == [b"0", b"1", b"2"] and [body for body in sorted(came) if counted(came[body])] == expected


def test_a_delay_queue_that_was_made_on_3_x(own):
    """Its arguments say nothing of a delivery limit; on 4.x the declare of today is refused."""
    with own.via.direct.channel() as channel:
        arguments = {"x-queue-type": "quorum", "x-message-ttl": 100, "x-dead-letter-exchange": "own.due"}
        channel.queue_declare("own.delay.100", durable=True, arguments=arguments | {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
    queue = own.queue("work", retry_min=100)
    own.publish("", queue)
    for attempt in range(3):
        assert counted(own.give_back(queue)) == counts(own.via.broker, attempt)


# --- `x-opt-delivery-time`: until then a quorum queue of RabbitMQ 4.4 holds a message --------------------------------------------------------

NAME, ASIDE = "x-opt-delivery-time", "x-dlx-proxy-deliver"


def test_a_delivery_time_has_another_name_in_the_queues_of_the_proxy(own):
    """No target gets one that is too far ahead."""
    ahead, beyond = int(time.time() * 1000) + 3_600_000, 32_503_680_000_000
    sink, again = own.queue("sink"), own.queue("again", retry_min=600_000)
    parks, source = own.queue("parks", dlx="own-later"), own.queue("source", dlx="", dlk=sink)

    def at(queue):
        """As the broker has it, in a message that goes back."""
        with own.via.direct.channel() as channel:
            method, properties, _ = one_of(channel, queue)
            channel.basic_reject(method.delivery_tag, requeue=queue != away)
            return {name: properties.headers[name] for name in (NAME, ASIDE) if name in properties.headers}

    away = f"{PREFIX}.delay.600000"
    own.publish("", again, headers={NAME: ahead})
    own.give_back(again)
    until(lambda: away in own.via.broker.queues(own.via.vhost) and own.depth(away) == 1, "it is away")
    assert at(away) == {ASIDE: ahead}  # which lets it come back
    assert own.get(again).properties.headers[NAME] == ahead
    own.die(parks, headers={NAME: ahead})
    own.has(PARKED, 1)
    assert at(PARKED) == {ASIDE: ahead}
    own.die(source, headers={NAME: ahead})
    assert own.get(sink).properties.headers[NAME] == ahead
    own.die(source, headers={NAME: beyond, "n": 1})
    assert own.get(sink).properties.headers.items() >= {"n": 1}.items() and own.proxy.metric("dlx_proxy_limits_met_total", limit=NAME) == 1
    own.proxy.says("a message goes on without its x-opt-delivery-time")


# --- At the oldest broker, through the proxy, they are those that a quorum queue of 4.3 has natively, but for DIFFERENCES ------------------------

MIN, LIMIT = 50, 2


def acquired(seen):
    """Before 4.3 there was one number, of all returns."""
    acquired = seen["headers"].pop("x-acquired-count", None)
    seen["headers"].pop("x-delivery-count", None)
    if acquired:
        seen["headers"]["x-delivery-count"] = acquired


def last_death(seen):
    """4.x says where a message died last; 3.10 only where it died first."""
    for name in ("exchange", "queue", "reason"):
        seen["headers"].pop(f"x-last-death-{name}", None)


def dead_redelivered(seen):
    """4.x reads a dead letter as redelivered, if a delivery of its message had failed; 3.10 does not."""
    if "x-death" in seen["headers"]:
        seen["redelivered"] = False


DIFFERENCES = [acquired, last_death, dead_redelivered]
LOOPS = {
    "rejected to the end": ["reject"] * 3,
    "nacks count for nobody": ["nack"] * 4 + ["reject"] * 3,
    "in turns": ["reject", "nack", "reject", "nack", "reject"],
    "acked in the end": ["nack", "reject", "ack"],
    "killed in the end": ["reject", "nack", "kill"],
}
MESSAGES = [EVERYTHING, EVERYTHING | {"expiration": "600000"}, {"headers": {"n": 1}}]
SETTLE = {"nack": ("basic_nack", {"requeue": True}), "reject": ("basic_reject", {"requeue": True}), "kill": ("basic_reject", {"requeue": False}), "ack": ("basic_ack", {})}


@pytest.fixture
def sides(request, via):
    """A scene at the oldest broker, through the proxy, and one at 4.3 itself."""
    oldest, newest = request.config.brokers[0], request.config.brokers[-1]
    if via.broker is not oldest or oldest is newest or not newest.is_from(4, 3):
        pytest.skip("compares the oldest broker with one from 4.3 on, once")
    newest.make(["natively"], [], [(newest.user, "natively", ".*", ".*", ".*")])
    native = Via(newest, vhost="natively")
    native.connect = lambda direct=False: Via.connect(native, direct=True)
    scenes = Scene(via, "natively"), Scene(native, "natively")
    yield scenes
    for scene in scenes:
        scene.close()
    native.close()
    newest.unmake(["natively"], [])


def on_both(sides, deed):
    """What `deed(scene, queue)` sees through the proxy, and natively."""

    def on(scene, kind):
        source, dlx, graves = scene.exchange("in", "topic"), scene.exchange("dlx"), scene.queue("graves")
        scene.bind(graves, dlx)
        queue = scene.queue("work", kind=kind, dlx=dlx, retry_type="all", retry_min=MIN, limit=LIMIT, counts="failed")  # 4.3 ignores the last
        scene.bind(queue, source, "a.#")
        return deed(scene, queue)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(on, sides, ("classic", "quorum")))


def seen(message):
    exchange, key, headers, rest, body = looks(message)
    headers = copy.deepcopy(headers) | {name: message.properties.headers[name] for name in ("x-delivery-count", "x-acquired-count") if name in message.properties.headers}
    for death in headers.get("x-death", []):
        assert isinstance(death.pop("time"), datetime.datetime)
    return {"exchange": exchange, "key": key, "redelivered": message.method.redelivered, "body": body, "headers": headers, "rest": rest}


def test_each_delivery_is_the_native_one(sides):
    cases = [(loop, number) for loop in LOOPS for number in range(len(MESSAGES))]

    def deed(scene, queue):
        for loop, number in cases:
            scene.publish(scene.name("in"), "a.key", **MESSAGES[number])
            came, returned = [], None
            for verb in LOOPS[loop]:
                message = scene.get(queue)
                assert returned is None or time.monotonic() - returned >= MIN / 1000, "never early"
                came.append(seen(message))
                returned = time.monotonic()
                name, how = SETTLE[verb]
                getattr(scene.channel, name)(message.method.delivery_tag, **how)
            if verb != "ack":
                came.append(seen(message := scene.get(scene.name("graves"))))
                scene.channel.basic_ack(message.method.delivery_tag)
            yield came

    used = set()
    for case, proxied, native in zip(cases, *on_both(sides, lambda *side: list(deed(*side))), strict=True):
        for difference in DIFFERENCES:
            for one in native:
                before = copy.deepcopy(one)
                difference(one)
                used |= {difference} if one != before else set()
        assert proxied == native, case
    assert used == set(DIFFERENCES), "a stated difference is there no more"


def test_native_retries_come_back_in_front(sides):
    """The one difference of order: natively what was away is served before what never was, through the proxy it is put at the tail."""

    def deed(scene, queue):
        for body in (b"first", b"second", b"third"):
            scene.publish(scene.name("in"), "a.key", body)
        tags = [scene.get(queue).method.delivery_tag for _ in range(2)]
        scene.channel.basic_reject(tags[0], requeue=True)
        scene.has(queue, 2)
        scene.channel.basic_ack(tags[1])
        return [scene.get(queue).body for _ in range(2)]

    assert on_both(sides, deed) == [[b"third", b"first"], [b"first", b"third"]]
