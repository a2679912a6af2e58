"""Targets that change on a living queue: by a declare that differs from it (`declares = "lenient"`), and by a policy that overrules arguments."""

import re
import signal
import subprocess
from contextlib import contextmanager

import pika
import pytest

from lab import BINARY, PATIENT, Proxy, until
from own import INTAKE, PREFIX, own  # noqa: F401

pytestmark = [pytest.mark.once, pytest.mark.proxied]

RECORD = f"{PREFIX}.redeclared"
LENGTH = {"x-max-length": 1000}


@pytest.fixture
def lenient(own):
    own.restart(declares="lenient")
    for target in ("old", "new"):
        own.queue(target)
    return own


def to(target, key=None, **more):
    """Arguments of a queue whose dead letters go to that queue, or, with a key, through that exchange."""
    if target is None:
        return dict(more)
    if key is None:
        return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{PREFIX}-{target}", **more}
    return {"x-dead-letter-exchange": target, "x-dead-letter-routing-key": key, **more}


def declare(channel, name, arguments):
    channel.queue_declare(f"{PREFIX}-{name}", durable=True, arguments=arguments)


def reject(own, channel, name):
    own.publish(f"{PREFIX}-{name}")
    method, _, _ = until(lambda: next((got for got in [channel.basic_get(f"{PREFIX}-{name}")] if got[0]), None), "a message to reject")
    channel.basic_reject(method.delivery_tag, requeue=False)


def expire(own, name):
    own.publish(f"{PREFIX}-{name}", expiration="1")


def arrives(own, target, count=1):
    until(lambda: own.depth(f"{PREFIX}-{target}") == count, f"{count} messages in {target}")
    own.channel.queue_purge(f"{PREFIX}-{target}")


def redeclared(own, proxy):
    """What the command lists, in tab-divided lines."""
    login = own.via.broker.parameters.credentials
    words = ["--admin", "%s:%d" % proxy.admin, "--vhost", own.via.vhost, "--username", login.username, "--password", login.password]
    words += ["--columns", "queue,own-arguments,target", "--non-interactive"]
    done = subprocess.run([BINARY, "queues", *words], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.split("\t")[1]]


@contextmanager
def refused(code=406):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        yield closed
    assert closed.value.reply_code == code


@pytest.mark.parametrize("kind", ("classic", "quorum"))
def test_the_last_declare_wins_on_all_connections(lenient, kind):
    kind = {"x-queue-type": kind}
    lenient.queue("q", **{key.replace("-", "_"): value for key, value in to("old", **kind).items()})
    other = lenient.connect()
    channel = other.channel()
    declare(channel, "q", to("new", **kind))
    for each in (lenient.channel, channel):
        reject(lenient, each, "q")
        arrives(lenient, "new")
    expire(lenient, "q")
    arrives(lenient, "new")
    declare(channel, "q", to("old", **kind))
    for each in (lenient.channel, channel):
        reject(lenient, each, "q")
        arrives(lenient, "old")
    expire(lenient, "q")
    arrives(lenient, "old")
    until(lambda: 'dlx_proxy_events_total{event="redeclared"} 2' in lenient.proxy.get("/metrics")[1], "both counted")
    other.close()


@pytest.fixture
def no_record(via):
    """A user for the proxy that may do all in the vhost but make, read or write the record."""
    rights = rf"^(?!{PREFIX}\.redeclared$)"
    via.broker.make([], [("no-record", "secret")], [("no-record", via.vhost, rights, rights, rights)])
    yield "no-record"
    via.broker.unmake([], ["no-record"])


@pytest.fixture
def changed(lenient):
    """The queue `q`, whose messages went to `old` and go to `new` since its last declare."""
    lenient.queue("q", **{key.replace("-", "_"): value for key, value in to("old").items()})
    declare(lenient.channel, "q", to("new"))
    return lenient


def test_the_last_declare_outlives_all_proxies(changed):
    changed.proxy.process.kill()
    with changed.via.direct.channel() as channel:
        for _ in range(50):
            channel.basic_publish("", f"{PREFIX}-q", b"m", pika.BasicProperties(delivery_mode=2, expiration="1"))
    until(lambda: changed.depth(INTAKE) == 50, "all in the intake queue")
    changed.proxy.stop()
    changed.start()
    arrives(changed, "new", 50)
    expire(changed, "q")
    arrives(changed, "new")
    declare(changed.channel, "q", to("old"))
    changed.restart(declares="lenient")
    expire(changed, "q")
    arrives(changed, "old")


def test_who_fills_the_stream_pushes_nothing_out_of_the_record(changed):
    """Whoever may write to the default exchange may publish there."""
    body = bytes(12 << 20)
    with changed.via.direct.channel() as channel:
        channel.confirm_delivery()
        for _ in range(25):
            channel.basic_publish("", RECORD, body)
    changed.queue("r", **{key.replace("-", "_"): value for key, value in to("old").items()})
    declare(changed.channel, "r", to("new"))  # recorded behind all that
    changed.restart(declares="lenient")
    expire(changed, "q")
    arrives(changed, "new")
    _, metrics = changed.proxy.get("/metrics")
    assert re.search(r'^dlx_proxy_events_total{event="record_foreign"} [1-9]', metrics, re.M), metrics
    assert "the record of redeclared queues has messages that no proxy with this user wrote" in changed.proxy.text()


def test_other_proxies_of_the_vhost_know_it(changed, tmp_path):
    declare(changed.channel, "q", to("old"))
    settings = {"DLX_PROXY_PREFIX": PREFIX, "DLX_PROXY_DECLARES": "lenient", "DLX_PROXY_VHOSTS": changed.via.vhost}
    other = Proxy(changed.upstream, "full", tmp_path / "other", **settings)
    other.wait_ready()
    login = changed.via.broker.parameters.credentials
    with pika.BlockingConnection(pika.ConnectionParameters(*other.address, changed.via.vhost, login, **PATIENT)) as connection:
        channel = connection.channel()
        declare(channel, "q", to("old"))
        declare(changed.channel, "q", to("new"))
        until(lambda: redeclared(changed, other), "the other one has read it")
        reject(changed, channel, "q")
        arrives(changed, "new")
    other.stop()


def test_what_was_redeclared_is_listed_until_it_is_gone(changed):
    listed = lambda: redeclared(changed, changed.proxy)
    assert listed() == [f'{PREFIX}-q\texchange "", key "{PREFIX}-old"\tqueue {PREFIX}-new']
    assert changed.proxy.get("/redeclared")[0] == 404
    changed.channel.queue_delete(f"{PREFIX}-q")
    until(lambda: not listed(), listed)
    changed.restart(declares="lenient")
    assert not listed()


def test_the_record_is_written_anew_when_it_is_deleted(changed):
    with changed.via.direct.channel() as channel:
        channel.queue_delete(RECORD)
    until(lambda: RECORD in changed.via.broker.queues(changed.via.vhost), "made anew")
    changed.restart(declares="lenient")
    expire(changed, "q")
    arrives(changed, "new")


def test_during_an_alarm_a_declare_goes_on_and_is_recorded_when_it_ends(changed):
    """... after `probe-timeout`: a client that publishes nothing is not blocked."""
    changed.queue("newer")
    with changed.via.broker.under_memory_alarm():
        # The first publish of a connection in an alarm passes, and blocks it.
        declare(changed.channel, "q", to(None))
        declare(changed.channel, "q", to("newer"))
        assert "not recorded yet" in changed.proxy.text()
    changed.restart(declares="lenient")
    expire(changed, "q")
    arrives(changed, "newer")


def test_without_a_right_to_the_record_it_counts_here_alone(changed, no_record):
    changed.restart(user=no_record, declares="lenient")
    until(lambda: "the record of redeclared queues cannot be read" in changed.proxy.text(), changed.proxy.text)
    declare(changed.channel, "q", to("new"))
    expire(changed, "q")
    arrives(changed, "new")


def test_a_declare_without_a_target_takes_it_away(lenient):
    declare(lenient.channel, "q", to("old"))
    lenient.queues.append(f"{PREFIX}-q")
    declare(lenient.channel, "q", {})
    reject(lenient, lenient.channel, "q")
    expire(lenient, "q")
    until(lambda: lenient.metric("dlx_proxy_dead_letters_undelivered_total") == 2, "both are dropped")
    declare(lenient.channel, "q", to("new"))
    reject(lenient, lenient.channel, "q")
    arrives(lenient, "new")
    assert lenient.depth(f"{PREFIX}-old") == 0


def test_a_queue_that_was_made_without_the_proxy(lenient):
    """Its arguments are the broker's, and so is what expires."""
    direct = lenient.via.connect(direct=True).channel()
    declare(direct, "q", to("old"))
    lenient.queues.append(f"{PREFIX}-q")
    declare(lenient.channel, "q", to("new"))
    reject(lenient, lenient.channel, "q")
    arrives(lenient, "new")
    expire(lenient, "q")
    arrives(lenient, "old")


def test_what_else_differs_is_refused_in_the_broker_s_words(lenient):
    declare(lenient.channel, "q", to("old", **LENGTH))
    lenient.queues.append(f"{PREFIX}-q")
    with refused() as closed:
        declare(lenient.connect().channel(), "q", to("new"))
    text = f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{PREFIX}-q' in vhost '{lenient.via.vhost}': received none but current is the value '1000' of type "
    assert closed.value.reply_text.startswith(text)
    reject(lenient, lenient.channel, "q")
    arrives(lenient, "old")


def test_the_user_must_be_allowed_to_write_to_the_new_exchange(lenient):
    """RabbitMQ asks for that only when it makes a queue."""
    declare(lenient.channel, "q", to("old"))
    lenient.queues.append(f"{PREFIX}-q")
    broker, vhost = lenient.via.broker, lenient.via.vhost
    broker.permit(vhost, "all-rights", ".*", "^(?!secret$).*", ".*")
    try:
        login = pika.PlainCredentials("all-rights", "secret")
        connection = pika.BlockingConnection(pika.ConnectionParameters(*lenient.proxy.address, vhost, login, **PATIENT))
        with refused():
            declare(connection.channel(), "q", to("secret", "k"))
        declare(connection.channel(), "q", to("new"))
        connection.close()
    finally:
        broker.permit(vhost, "all-rights", ".*", ".*", ".*")
    reject(lenient, lenient.channel, "q")
    arrives(lenient, "new")


def test_strict_refuses_as_the_broker_does(own):
    declare(own.channel, "q", to("old"))
    own.queues.append(f"{PREFIX}-q")
    with refused() as closed:
        declare(own.connect().channel(), "q", to("new"))
    assert "received '' with the key 'own-new' but current is '' with the key 'own-old'" in closed.value.reply_text


def test_a_policy_that_overrules_arguments_changes_a_living_queue(own, tmp_path):
    file = tmp_path / "dlx-proxy.toml"

    def write(*definition):
        head = ["[[policy]]", 'name = "q"', f'vhost = "{own.via.vhost}"', f"pattern = '^{PREFIX}-q$'", "overrules-arguments = true"]
        file.write_text("\n".join(head + ["[policy.definition]", *definition]))

    write('delayed-retry-type = "disabled"', "delayed-retry-min = 1")
    own.restart(config=file)
    for target in ("old", "new"):
        own.queue(target)
    declare(own.channel, "q", to("old"))
    own.queues.append(f"{PREFIX}-q")
    reject(own, own.channel, "q")
    arrives(own, "old")
    write(f'dead-letter-routing-key = "{PREFIX}-new"', "delivery-limit = 0")
    own.proxy.process.send_signal(signal.SIGHUP)
    until(lambda: "settings reloaded" in own.proxy.text(), own.proxy.text)
    reject(own, own.channel, "q")
    arrives(own, "new")
    expire(own, "q")
    arrives(own, "new")
    own.publish(f"{PREFIX}-q")
    method, _, _ = until(lambda: next((got for got in [own.channel.basic_get(f"{PREFIX}-q")] if got[0]), None), "a message to return")
    own.channel.basic_nack(method.delivery_tag, requeue=True)
    arrives(own, "new")
