"""Targets that change on a living queue: by a declare that differs from it (the setting `lenient`), and by a policy that overrules arguments."""

import json
import signal
from contextlib import contextmanager

import pika
import pytest

from console import command
from lab import until
from scene import INTAKE, PREFIX, TARGETS, policies, user

RECORD = f"{PREFIX}.redeclared"
lenient = pytest.mark.parametrize("own", [{"lenient": TARGETS}], indirect=True)


def to(target):
    """Arguments of a queue whose dead letters go to that one."""
    return {"dlx": "", "dlk": f"{PREFIX}-{target}"}


@pytest.fixture
def changed(own):
    """The queue `q`, whose messages went to `old` and go to `new` since its last declare."""
    for target in ("old", "new"):
        own.queue(target)
    own.queue("q", **to("old"))
    own.queue("q", **to("new"))
    return own


def arrives(own, target, count=1):
    """Messages that have died in `q`, or die."""
    own.has(f"{PREFIX}-{target}", count)
    own.all_of(f"{PREFIX}-{target}", count)


def expires(own, target):
    own.publish("", f"{PREFIX}-q", expiration="1")
    arrives(own, target)


def rejected(own, target, channel=None):
    own.publish("", f"{PREFIX}-q")
    own.reject(f"{PREFIX}-q", channel=channel)
    arrives(own, target)


def redeclared(own):
    """What the command lists, in tab-divided lines."""
    printed = command(own, "--columns", "queue,own-arguments,target", "-o", "tsv", group="queues")[1]
    return [line for line in printed.splitlines() if line.split("\t")[1]]


@contextmanager
def refused(words):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        yield
    assert closed.value.reply_code == 406 and words in closed.value.reply_text, closed.value


EVERYTHING = "x-message-ttl,x-max-length,x-max-priority,x-single-active-consumer,x-queue-type"


@pytest.mark.parametrize("own", [{"lenient": EVERYTHING}], indirect=True)
@pytest.mark.parametrize("target", [{}, to("old")], ids=["alone", "with a target"])
def test_what_may_differ_stays_as_the_queue_has_it(own, target):
    own.queue("old")
    has = {"x-queue-type": "classic", "x-message-ttl": 30_000, "x-single-active-consumer": True}
    wanted = {"x-queue-type": "quorum", "x-message-ttl": 60_000, "x-max-length": 5, "x-single-active-consumer": False, "x-max-priority": 3}
    own.queue("q", **target, **has)
    own.queue("q", **target, **wanted)
    listed = lambda: next((of for of in json.loads(command(own, "-o", "json", group="queues")[1])["queues"] if of["queue"] == f"{PREFIX}-q"), {"differs": []})
    of = listed()
    assert {differs["argument"]: (differs["wanted"], differs["has"]) for differs in of["differs"]} == {
        "x-queue-type": ("quorum", "classic"), "x-message-ttl": ("60000", "30000"), "x-max-length": ("5", None), "x-max-priority": ("3", None),
        "x-single-active-consumer": ("false", "true")}
    assert of["state"] == ("full" if target else "off")
    assert "x-message-ttl 60000 (has 30000)" in command(own, group="queues")[1]
    assert own.proxy.metric("dlx_proxy_events_total", event="declare_differs") == 5
    if target:
        rejected(own, "old")
    # What else differs is refused, and a declare that fits shows no difference any more.
    with refused("x-expires"):
        own.queue("q", **target, **wanted, **{"x-expires": 60_000}, channel=own.connection.channel())
    own.queue("q", **target, **has)
    assert listed()["differs"] == []


@pytest.mark.parametrize("own", [{"lenient": "transient=1h,x-queue-master-locator,x-queue-version"}], indirect=True)
def test_old_clients_go_on_with_a_new_broker(own):
    """4.3 closes their connections by default, or gives their consumers a prefetch each that was meant for all."""
    is_new = own.via.broker.is_from(4, 3)
    for _ in range(2):
        own.queue("q", durable=False, **{"x-queue-master-locator": "min-masters", "x-queue-version": 1})
    (of, *_) = json.loads(command(own, "-o", "json", group="queues")[1])["queues"] or [{"differs": []}]
    assert {differs["argument"]: (differs["wanted"], differs["has"]) for differs in of["differs"]} == (is_new and {
        "durable": ("false", "true"), "x-expires": (None, "3600000"), "x-queue-type": (None, "classic"),
        "x-queue-master-locator": ("min-masters", None), "x-queue-version": ("1", None)} or {})
    own.channel.basic_qos(prefetch_count=5, global_qos=True)
    assert own.proxy.metric("dlx_proxy_events_total", event="prefetch_of_channel") == is_new


@lenient
@pytest.mark.parametrize("kind", ("classic", "quorum"))
def test_the_last_declare_wins_on_all_connections(own, kind):
    for target in ("old", "new"):
        own.queue(target)
    own.queue("q", kind=kind, **to("old"))
    with own.via.connect() as other:
        channel = other.channel()
        for target in ("new", "old"):
            own.queue("q", channel=channel, kind=kind, **to(target))
            for each in (own.channel, channel):
                rejected(own, target, each)
            expires(own, target)
        until(lambda: own.proxy.event("redeclared") == 2, "both counted")
        # What else differs is refused in the broker's words; without a target it is taken away.
        text = f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{PREFIX}-q' in vhost '{own.via.vhost}': received the value '5'"
        with refused(text):
            own.queue("q", channel=other.channel(), kind=kind, max_length=5, **to("new"))
        own.queue("q", channel=channel, kind=kind)
        own.die(f"{PREFIX}-q")
        own.publish("", f"{PREFIX}-q", expiration="1")
        until(lambda: own.metric("dlx_proxy_dead_letters_undelivered_total") == 2, "both are dropped")
        own.queue("q", channel=channel, kind=kind, **to("new"))
        rejected(own, "new")
        assert own.depth(f"{PREFIX}-old") == 0
    own.restart()
    with refused(f"received '' with the key '{PREFIX}-new' but current is '' with the key '{PREFIX}-old'"):
        own.queue("q", kind=kind, **to("new"))


@lenient
def test_the_last_declare_outlives_all_proxies(changed):
    changed.proxy.kill()
    with changed.via.direct.channel() as channel:
        for _ in range(50):
            changed.publish("", f"{PREFIX}-q", channel=channel, expiration="1")
        changed.has(INTAKE, 50)
    changed.restart(lenient=TARGETS)
    arrives(changed, "new", 50)
    expires(changed, "new")
    changed.queue("q", **to("old"))
    changed.restart(lenient=TARGETS)
    expires(changed, "old")


@lenient
def test_who_fills_the_stream_or_deletes_it_takes_nothing_out_of_the_record(changed):
    """Whoever may write to the default exchange may publish there."""
    body = bytes(12 << 20)
    with changed.via.direct.channel() as channel:
        channel.confirm_delivery()
        for _ in range(25):
            channel.basic_publish("", RECORD, body)
    changed.queue("r", **to("old"))
    changed.queue("r", **to("new"))  # recorded behind all that
    changed.restart(lenient=TARGETS)
    expires(changed, "new")
    assert changed.proxy.event("record_foreign") >= 1
    assert "the record of redeclared queues has messages that no proxy with this user wrote" in changed.proxy.text()
    changed.delete(RECORD)
    until(lambda: RECORD in changed.via.broker.queues(changed.via.vhost), "made anew")
    changed.restart(lenient=TARGETS)
    expires(changed, "new")


@lenient
def test_what_was_redeclared_is_listed_until_it_is_gone(changed, tmp_path):
    """By other proxies of the vhost, too, which go by it."""
    assert redeclared(changed) == [f'{PREFIX}-q\texchange "", key "{PREFIX}-old"\tqueue {PREFIX}-new']
    changed.queue("q", **to("old"))
    ours = changed.proxy
    changed.via.proxy = other = changed.another(tmp_path / "other", lenient=TARGETS)
    with changed.via.connect() as connection:
        channel = connection.channel()
        changed.queue("q", channel=channel, **to("old"))
        changed.queue("q", **to("new"))
        until(lambda: redeclared(changed), "the other one has read it")
        rejected(changed, "new", channel)
    changed.via.proxy = ours
    other.stop()
    changed.channel.queue_delete(f"{PREFIX}-q")
    until(lambda: not redeclared(changed), lambda: redeclared(changed))
    changed.restart(lenient=TARGETS)
    assert not redeclared(changed)


@lenient
def test_during_an_alarm_a_declare_goes_on_and_is_recorded_when_it_ends(changed):
    """... after `probe-timeout`: a client that publishes nothing is not blocked."""
    changed.queue("newer")
    changed.via.close()
    with changed.via.broker.under_memory_alarm():
        # The first publish of a connection in an alarm passes, and blocks it.
        changed.queue("q")
        changed.queue("q", **to("newer"))
        assert "not recorded yet" in changed.proxy.text()
    changed.restart(lenient=TARGETS)
    expires(changed, "newer")


@lenient
def test_rights_count(changed):
    """The user's to write to the new exchange: RabbitMQ asks for that only when it makes a queue. Without the proxy's to the record it counts here alone."""
    with user(changed.via, "clerk", write="^(?!secret$).*") as clerk, changed.via.connect(user=clerk) as connection:
        with refused("secret"):
            changed.queue("q", channel=connection.channel(), dlx="secret", dlk="k")
        changed.queue("q", channel=connection.channel(), **to("old"))
    rejected(changed, "old")
    rights = rf"^(?!{PREFIX}\.redeclared$)"
    with user(changed.via, "no-record", rights, rights, rights) as no_record:
        changed.restart(user=no_record, lenient=TARGETS)
        changed.proxy.says("the record of redeclared queues cannot be read")
        changed.queue("q", **to("new"))
        expires(changed, "new")
        changed.stop()
    changed.start()


@lenient
def test_a_queue_that_was_made_without_the_proxy(own):
    """Its arguments are the broker's, and so is what expires."""
    for target in ("old", "new"):
        own.queue(target)
    own.made("q", **to("old"))
    own.queue("q", **to("new"))
    rejected(own, "new")
    expires(own, "old")


def test_a_policy_that_overrules_arguments_changes_a_living_queue(own, tmp_path):
    def write(definition):
        return policies(tmp_path / "dlx-proxy.toml", own.via.vhost, q=(f"^{PREFIX}-q$", {"overrules-arguments": True} | definition))

    own.restart(config=write({"delayed-retry-type": "disabled", "delayed-retry-min": 1}))
    for target in ("old", "new"):
        own.queue(target)
    own.queue("q", **to("old"))
    rejected(own, "old")
    write({"dead-letter-routing-key": f"{PREFIX}-new", "delivery-limit": 0})
    own.proxy.process.send_signal(signal.SIGHUP)
    own.proxy.says("settings reloaded")
    rejected(own, "new")
    expires(own, "new")
    own.publish("", f"{PREFIX}-q")
    own.give_back(f"{PREFIX}-q")
    arrives(own, "new")
