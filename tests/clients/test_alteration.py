"""Queues that are made anew with other arguments while their clients stay connected."""

import json
import threading
import time

import pika
import pytest

from console import management
from lab import Via, until
from scene import PREFIX, Own, arguments, user
from test_adoption import asked, queues, quoted, state


def queue_of(own, name):
    """What the management API says of a queue."""
    return asked(own.via, f"queues/{quoted(own.via.vhost)}/{quoted(name)}?disable_stats=true&enable_queue_totals=true")


def altered(own, name, *words, code=0):
    return queues(own, "alter", name, *words, "--approve", code=code)


@pytest.fixture
def altering(via, tmp_path):
    """A proxy that is alone in its vhost."""
    vhost, broker = "altering", via.broker
    broker.make([vhost], [], [(broker.user, vhost, ".*", ".*", ".*")])
    own = Own(Via(broker, vhost=vhost), tmp_path / "log", management_url=management(via))
    yield own
    own.stop()
    broker.unmake([vhost], [])


class Load:
    """A publisher and consumers of a queue, each on a connection of its own through the proxy."""

    def __init__(self, via, queue, exchange, key, consumers=2, declares=None, rejects=False):
        self.via, self.queue, self.exchange, self.key = via, queue, exchange, key
        self.declares, self.rejects = declares, rejects
        self.got, self.errors, self.ended = [], [], threading.Event()
        self.sent, self.is_published = 0, False
        self.threads = [threading.Thread(target=self._publish), *(threading.Thread(target=self._consume) for _ in range(consumers))]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def is_all(self):
        return len(self.got) >= self.sent

    def _guarded(self, work):
        try:
            with self.via.connect() as connection, connection.channel() as channel:
                work(connection, channel)
        except Exception as error:  # noqa: BLE001 - a thread's errors are the test's
            self.errors.append(repr(error))

    def _publish(self):
        def work(connection, channel):
            channel.confirm_delivery()
            while not self.ended.is_set():
                channel.basic_publish(self.exchange, self.key, b"%d" % self.sent, mandatory=True)
                self.sent += 1

        self._guarded(work)
        self.is_published = True

    def _consume(self):
        def work(connection, channel):
            def take(channel, method, _, body):
                self.got.append(int(body))
                if self.rejects:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                else:
                    channel.basic_ack(method.delivery_tag)

            if self.declares:
                channel.queue_declare(self.queue, durable=True, arguments=arguments(**self.declares))
            channel.basic_qos(prefetch_count=10)
            channel.basic_consume(self.queue, take)
            while not (self.is_published and self.is_all()):
                connection.process_data_events(time_limit=0.05)

        self._guarded(work)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_is_made_anew_under_its_clients(altering, kind):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", kind=kind, ttl=30000, dlx=own.exchange("dead"), max_length=1000)
    own.bind(name, exchange, "order.#")
    with Load(own.via, name, exchange, "order.new", consumers=1) as load:
        until(lambda: load.sent > 50 or load.errors, "messages")
        plan = queues(own, "alter", name, "--set", "x-message-ttl=60000", "--unset", "x-max-length", "--dry-run")
        assert "x-message-ttl: 30000 -> 60000" in plan and "x-max-length: 1000 -> not set" in plan
        said = altered(own, name, "--set", "x-message-ttl=60000", "--unset", "x-max-length")
        assert "Clients waited for" in said, said
        sent = load.sent
        until(lambda: load.sent > sent + 50 or load.errors, "more messages")
    assert not load.errors
    assert load.got == list(range(load.sent))
    now = queue_of(own, name)["arguments"]
    assert now["x-message-ttl"] == 60000 and "x-max-length" not in now
    assert now["x-dead-letter-exchange"].strip("+").startswith(PREFIX)
    assert not left(own)
    # A client that does not know of it goes on.
    own.queue("orders", kind=kind, ttl=30000, dlx=own.name("dead"), max_length=1000)
    own.restart(management_url=management(own.via))
    # Once it has listed the queues.
    until(lambda: state(own, name), "the queue")
    own.queue("orders", kind=kind, ttl=30000, dlx=own.name("dead"), max_length=1000)
    own.queue("orders", kind=kind, ttl=60000, dlx=own.name("dead"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'x-overflow'"):
        own.queue("orders", kind=kind, ttl=60000, dlx=own.name("dead"), overflow="reject-publish")


def test_declares_meanwhile_may_say_the_old_arguments(altering):
    own = altering
    name = own.made("orders", max_length=1000)
    ended, refused = threading.Event(), []

    def declare():
        with own.via.connect() as connection:
            while not ended.is_set():
                try:
                    with connection.channel() as channel:
                        while not ended.is_set():
                            own.queue("orders", channel=channel, max_length=1000)
                except pika.exceptions.ChannelClosedByBroker as closed:
                    refused.append(str(closed))

    declaring = threading.Thread(target=declare)
    declaring.start()
    for number in range(5):
        assert "Done" in altered(own, name, "--set", f"x-max-length={2000 + number}")
    ended.set()
    declaring.join()
    assert not refused


def test_a_classic_queue_becomes_a_quorum_queue(altering):
    """Under its clients, which go on to declare what it was."""
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", ttl=30000, dlx=own.exchange("dead"))
    own.bind(name, exchange, "order.#")
    dead = own.queue("dead")
    own.bind(dead, own.name("dead"), "order.#")
    with Load(own.via, name, exchange, "order.new", consumers=1) as load:
        until(lambda: load.sent > 50 or load.errors, "messages")
        said = altered(own, name, "--type", "quorum")
        assert "Clients waited for" in said and queue_of(own, name)["type"] == "quorum", said
        for again in ({}, {"kind": "classic"}, {"kind": "quorum"}):
            own.queue("orders", ttl=30000, dlx=own.name("dead"), **again)
        sent = load.sent
        until(lambda: load.sent > sent + 50 or load.errors, "more messages")
    assert not load.errors
    assert load.got == list(range(load.sent))
    own.publish(exchange, "order.new", b"dies")
    own.channel.basic_reject(own.get(name).method.delivery_tag, requeue=False)
    assert own.get(dead).body == b"dies"
    assert "a quorum queue cannot become a classic one" in altered(own, name, "--type", "classic", code=1)


@pytest.mark.parametrize("reads", ["consume", "get"])
@pytest.mark.parametrize("kinds", [("classic", "quorum"), ("quorum", "classic")], ids="-".join)
def test_which_types_a_channel_of_the_broker_survives(altering, kinds, reads):
    """Without a proxy (S12.11): what the plan refuses, it does not refuse in vain."""
    own, broker = altering, altering.via.broker
    survives = kinds[1] == "quorum" and (reads == "consume" or broker.is_from(4, 0))
    with own.via.connect(direct=True) as connection, own.via.direct.channel() as other:
        channel = connection.channel()
        for kind in kinds:
            name = own.queue("orders", channel=other, kind=kind)
            try:
                if reads == "get":
                    channel.basic_get(name)
                else:
                    channel.basic_cancel(channel.basic_consume(name, lambda *_: None))
            except pika.exceptions.ConnectionClosedByBroker as closed:
                assert closed.reply_code == 541 and kind == kinds[1] and not survives
                return
            other.queue_delete(name)
        assert survives


def test_an_exchange_stays_that_goes_with_its_last_binding(altering):
    own = altering
    for kind in ("fanout", "topic"):
        exchange = own.exchange(kind, kind, auto_delete=True)
        name = own.made(f"of-{kind}", max_length=1000)
        own.bind(name, exchange, "order.#")
        assert "Done" in altered(own, name, "--unset", "x-max-length")
        own.publish(exchange, "order.new", b"comes")
        assert own.get(name).body == b"comes" and not left(own)
        own.channel.queue_unbind(name, exchange, "order.#")
        assert exchange not in own.via.broker.exchanges(own.via.vhost)


def test_what_cannot_become_a_quorum_queue(altering):
    own = altering
    name = own.made("orders", **{"x-max-priority": 5})
    assert "x-max-priority" in altered(own, name, "--type", "quorum", code=1)
    own.channel.basic_qos(prefetch_count=3, global_qos=True)
    own.channel.basic_consume(name, lambda *_: None)
    words = "channels with a prefetch for all of the channel"
    if not own.via.broker.is_from(4, 3):
        until(lambda: words in altered(own, name, "--type", "quorum", code=1), words, pause=0.5)


def names(own):
    """All queues of the vhost."""
    return [queue["name"] for queue in asked(own.via, f"queues/{quoted(own.via.vhost)}?disable_stats=true&columns=name")]


def left(own):
    """What an alteration needs, and takes away."""
    return [name for name in names(own) if any(part in name for part in (".altering/", ".trial/", ".claim/", ".aside/"))]


def test_a_queue_that_is_at_work_stays_as_it_is(altering):
    own = altering
    name = own.made("busy", ttl=60000)
    own.publish("", name)
    message = own.get(name)
    change = ("--set", "x-max-length=7", "--wait", "1s")
    assert "1 connections had messages of it unsettled" in altered(own, name, *change, code=1)
    own.channel.basic_nack(message.method.delivery_tag, requeue=True)
    assert "1 messages are ready" in altered(own, name, *change, "--max-pause", "1s", code=1)
    own.get(name)
    with own.via.direct.channel() as channel:
        channel.basic_consume(name, lambda *_: None)
        own.channel.basic_ack(message.method.delivery_tag + 1)
        assert "1 consumers read from it past this proxy" in altered(own, name, *change, code=1)
        assert "What they have not settled is lost" in altered(own, name, *change, "--allow-direct", "--dry-run")
    assert not left(own) and "x-max-length" not in queue_of(own, name)["arguments"]
    assert "Done" in altered(own, name, *change)
    assert queue_of(own, name)["arguments"]["x-max-length"] == 7


def test_it_says_what_is_against_it(altering):
    own = altering
    name = own.made("plain")
    assert "nothing would change" in altered(own, name, code=1)
    assert "a queue can become `classic` or `quorum`" in altered(own, name, "--set", "x-queue-type=stream", code=1)
    assert "write ARGUMENT=VALUE" in altered(own, name, "--set", "x-max-length", code=1)
    refused = altered(own, name, "--set", "x-max-length=-1", code=1)
    assert "x-max-length" in refused and not left(own), refused
    assert "there is no queue" in altered(own, own.name("none"), "--set", "x-max-length=7", code=1)
    gone = own.made("gone", auto_delete=True)
    assert "auto-delete" in altered(own, gone, "--set", "x-max-length=7", code=1)
    with own.via.direct.channel() as channel:
        own.queue("feeds", channel=channel, dlx="", dlk=name)
    assert f"dead-letters messages of the queue {own.name('feeds')} into it" in altered(own, name, "--set", "x-max-length=7", code=1)


def test_a_proxy_that_is_killed_meanwhile_leaves_a_queue(altering):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", ttl=30000, dlx=own.exchange("dead"))
    own.bind(name, exchange, "order.#")
    for number in range(8):
        altering = threading.Thread(target=queues, args=(own, "alter", name, "--set", f"x-max-length={1000 + number}", "--approve"), kwargs={"code": None})
        altering.start()
        time.sleep(0.02 * (number + 1))
        own.proxy.kill()
        altering.join()
        own.restart(management_url=management(own.via))
        own.channel
        until(lambda: not left(own), lambda: left(own))
        own.publish(exchange, "order.new", b"%d" % number)
        message = own.get(name)
        assert message.body == b"%d" % number
        own.channel.basic_ack(message.method.delivery_tag)


def test_a_proxy_that_is_killed_before_it_has_begun_changes_nothing(altering):
    """Between the declare of the order and its binding."""
    own = altering
    order = {"queue": own.name("gone"), "durable": True, "quorum": False, "old": {}, "new": {}, "bindings": []}
    arguments = {"x-queue-type": "quorum", "x-dlx-proxy-order": json.dumps(order)}
    own.channel.connection.close()
    own.proxy.kill()
    with own.via.direct.channel() as channel:
        channel.queue_declare(f"{PREFIX}.altering/{order['queue']}", durable=True, arguments=arguments)
    assert left(own)
    own.restart(management_url=management(own.via))
    own.channel
    until(lambda: not left(own), lambda: left(own))
    assert order["queue"] not in names(own)


def test_an_alarm_ends_the_attempts(altering):
    own = altering
    name = own.made("orders", max_length=1000)
    with own.via.broker.under_memory_alarm():
        own.publish("", name, b"late")
        assert "what 1 connections had published was not settled" in altered(own, name, "--set", "x-max-length=7", "--wait", "1s", code=1)
    message = own.get(name)
    assert message.body == b"late"
    own.channel.basic_ack(message.method.delivery_tag)
    assert "Done" in altered(own, name, "--set", "x-max-length=7")


@pytest.fixture
def beside(altering, tmp_path):
    """Another proxy in the vhost, and what connects through it."""
    own = altering
    another = own.another(tmp_path / "another", management_url=management(own.via))
    via = Via(own.via.broker, another, own.via.vhost)
    via.connect().close()
    connections = f"vhosts/{quoted(via.vhost)}/connections?columns=user_provided_name"
    publishers = lambda: [one for one in asked(own.via, connections) if one and "publisher" in one["user_provided_name"]]
    until(lambda: len(publishers()) == 2, publishers, pause=0.2)
    yield via
    another.stop()


def test_clients_of_another_proxy_wait_too(altering, beside):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", kind="quorum", max_length=1000)
    own.bind(name, exchange, "order.#")
    with Load(beside, name, exchange, "order.new", consumers=1) as others, Load(own.via, name, exchange, "order.new", consumers=0) as load:
        others.is_all = lambda: len(others.got) >= load.sent + others.sent
        until(lambda: load.sent > 50 and others.sent > 50 or load.errors, "messages")
        assert "Other proxies work in this vhost: 1." in queues(own, "alter", name, "--unset", "x-max-length", "--dry-run")
        said = altered(own, name, "--unset", "x-max-length")
        assert "Clients waited for" in said, said
        sent = load.sent
        until(lambda: load.sent > sent + 50 or load.errors, "more messages")
    assert not load.errors and not others.errors
    assert sorted(others.got) == sorted([*range(load.sent), *range(others.sent)])
    assert "x-max-length" not in queue_of(own, name)["arguments"] and not left(own)


def test_a_proxy_finishes_what_another_one_leaves(altering, beside):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", max_length=1000)
    own.bind(name, exchange, "order.#")
    with Load(beside, name, exchange, "order.new", consumers=1) as others:
        working = threading.Thread(target=queues, args=(own, "alter", name, "--unset", "x-max-length", "--approve"), kwargs={"code": None})
        working.start()
        until(lambda: "takes part" in beside.proxy.text(), beside.proxy.text)
        own.proxy.kill()
        working.join()
        until(lambda: not left(own), lambda: left(own))
        sent = others.sent
        until(lambda: others.sent > sent + 50 or others.errors, "more messages")
    assert not others.errors and others.got == list(range(others.sent))
    own.restart(management_url=management(own.via))


def test_a_right_that_is_missing_shows_before_anything_is_changed(altering):
    own = altering
    exchange = own.exchange("shop", "topic")
    name = own.made("orders", max_length=1000)
    own.bind(name, exchange, "order.#")
    with user(own.via, "narrow", configure=f"^{PREFIX}", write=f"^{PREFIX}", read=f"^{PREFIX}[.]|^{name}$"):
        own.restart("narrow", management_url=management(own.via))
        said = altered(own, name, "--set", "x-max-length=7", code=1)
        assert f"access to exchange '{exchange}'" in said, said
    assert not left(own) and queue_of(own, name)["arguments"]["x-max-length"] == 1000


def test_dead_letters_go_on_by_the_new_arguments(altering):
    own = altering
    own.dead, dlx = own.queue("dead"), own.exchange("dlx")
    own.bind(own.dead, dlx)
    name = own.made("orders", dlx=dlx)
    own.channel.basic_consume(name, lambda channel, method, *_: channel.basic_reject(method.delivery_tag, requeue=False))
    own.publish("", name, b"before")
    own.connection.process_data_events(0.5)
    assert [message.body for message in own.all_of(own.dead, 1)] == [b"before"]
    done = []
    altering = threading.Thread(target=lambda: done.append(altered(own, name, "--set", "x-max-length=7")))
    altering.start()
    while altering.is_alive():
        own.connection.process_data_events(0.05)
    altering.join()
    assert done and "Done" in done[0]
    own.publish("", name, b"after")
    own.connection.process_data_events(0.5)
    [message] = own.all_of(own.dead, 1)
    assert (message.body, message.properties.headers["x-first-death-reason"]) == (b"after", "rejected")
    labels = {"vhost": own.via.vhost, "queue": name, "reason": "rejected", "outcome": "confirmed"}
    until(lambda: own.proxy.metric("dlx_proxy_messages_dead_lettered_total", **labels) == 2, "both count")


def test_what_a_quorum_queue_counts_and_what_it_says(altering):
    """Without a proxy (S12.12)."""
    own, broker = altering, altering.via.broker
    with own.via.direct.channel() as channel:
        name = own.queue("orders", kind="quorum", channel=channel)
        single = own.queue("single", kind="quorum", single_active=True, channel=channel)
        own.fill(name, [b"one", b"two"])
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{own.via.vhost}">>, queue, <<"{name}">>)), {{Leader, _}} = amqqueue:get_pid(Q)'
        broker.eval(f"{found}, sys:suspend(Leader).")
        try:
            counted = channel.queue_declare(name, passive=True).method
            assert (counted.message_count, counted.consumer_count) == (0, 0)
        finally:
            broker.eval(f"{found}, sys:resume(Leader).")
        own.has(name, 2)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="405"):
            channel.basic_get(single)


def test_which_arguments_of_an_order_the_broker_compares(altering):
    """Without a proxy (S7.3)."""
    own = altering
    with own.via.direct.channel() as channel:
        arguments = {"x-queue-type": "quorum", "x-max-length-bytes": 7, "x-of-somebody": "one"}
        name = own.queue("order", channel=channel, **arguments)
        channel.queue_declare(name, durable=True, arguments={**arguments, "x-of-somebody": "another"})
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="406.*x-max-length-bytes"):
            channel.queue_declare(name, durable=True, arguments={**arguments, "x-max-length-bytes": 8})


@pytest.mark.parametrize("declares", [True, False], ids=["who-declared-it", "who-did-not"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_consumers_reject_afterwards_does_not_die_at_the_broker(altering, kind, declares):
    """RabbitMQ 3 loses what it dead-letters itself while the leader of the queue stops."""
    own = altering
    made = own.queue if declares else own.made
    name = made("orders", kind=kind, dlx=own.exchange("dead"))
    with Load(own.via, name, "", name, consumers=1, declares=declares and {"kind": kind, "dlx": own.name("dead")}, rejects=True) as load:
        until(lambda: load.sent > 50 or load.errors, "messages")
        assert "Clients waited for" in altered(own, name, "--set", "x-max-length=1000")
        with own.via.direct.channel() as spy:
            spy.queue_declare("spy", exclusive=True)
            spy.queue_bind("spy", queue_of(own, name)["arguments"]["x-dead-letter-exchange"].strip("+"), "#")
            sent = load.sent
            until(lambda: load.sent > sent + 50 or load.errors, "more messages")
            assert spy.queue_declare("spy", passive=True).method.message_count == 0
    assert not load.errors and load.got == list(range(load.sent))
