"""Faults that are really made, and which alerts each of them lets fire: these and no others."""

import contextlib
from dataclasses import dataclass, field
from typing import Callable

import pika

from lab import until


@dataclass(frozen=True)
class Fault:
    name: str
    make: Callable
    """A generator: makes the fault in front of its `yield`, and ends it behind."""
    alerts: set
    settings: dict = field(default_factory=dict)
    passing: set = field(default_factory=set)
    """Alerts that may fire for a moment on the way there, or by the alarm, which concerns all who publish."""
    quiet: bool = False
    """Whether nothing may have died there before."""
    begin: Callable = None
    """What happens long before the fault is told."""
    patience: int = 30
    """Within so many seconds it is told."""


def away(member, _):
    """The broker is gone."""
    member.cable.cut()
    for _ in range(3):
        with contextlib.suppress(pika.exceptions.AMQPError):
            member.connect()
    yield


def unsteady(member, _):
    """The broker is gone again and again, for a moment."""
    for _ in range(8):
        member.cable.cut()
        until(lambda: not member.proxy.is_ready(), "it is noticed")
        member.cable.mend()
        until(member.proxy.is_ready, "it is back")
    yield


def killed(member, _):
    member.kill()
    yield


def parking(member, _):
    """A target that is not there, and a message that somebody else has put into the parking queue."""
    with member.connect() as connection:
        member.reject(member.prepare(connection.channel(), exchange="nowhere"))
    with member.connect(direct=True) as connection:
        channel = connection.channel()
        channel.basic_publish("", "dlx-proxy.parked", b"foreign", pika.BasicProperties(delivery_mode=2))
        yield
        channel.queue_declare("arrived", durable=True)
        channel.exchange_declare("behind", "fanout")
        channel.queue_bind("arrived", "behind")
        channel.exchange_declare("nowhere", "fanout", arguments={"alternate-exchange": "behind"})
        until(lambda: member.depth("arrived") == 1, "what waited has gone to its target")


def doubt(member, _):
    """The confirms of a target are lost."""
    member.cable.exchange = "amq.fanout"
    connection = member.connect()
    # Whatever waited behind the reject would meet `close-wait`, and so does nothing: the reject stays withheld.
    member.reject(member.prepare(connection.channel(), exchange="amq.fanout"), cancel=False)
    yield
    member.kill()  # what becomes of it in time is another matter


def full(member, _):
    """There is no room to keep the message until it is settled."""
    with member.connect() as connection:
        member.reject(member.prepare(connection.channel()), size=4096)
        yield


def alarm(member, _):
    """The broker takes nothing any more."""
    with member.connect() as connection:
        channel = member.prepare(connection.channel())
        channel.basic_publish("", "orders", b"m", pika.BasicProperties(delivery_mode=2))
        # Before the alarm: of a connection that published in it, the broker would read nothing more.
        method = next(channel.consume("orders"))[0]
        with member.broker.under_memory_alarm():
            channel.basic_reject(method.delivery_tag, requeue=False)
            yield


def dead(member, _):
    """The parking queue stands still."""
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{member.name}">>, queue, <<"dlx-proxy.parked">>}})'
    process = f"{found}, P = amqqueue:get_pid(Q), Process = case P of {{Name, _}} -> Name; _ -> P end"
    member.broker.eval(f"{process}, sys:suspend(Process).")
    yield
    member.broker.eval(f"{process}, sys:resume(Process).")


def foreign(member, _):
    """The proxy's user loses its rights, which it notices when it connects."""
    member.broker.eval(f'rabbit_auth_backend_internal:clear_permissions(<<"{member.broker.user}">>, <<"{member.name}">>, <<"tests">>).')
    member.cable.cut()
    member.cable.mend()
    yield


def stranger(member, _):
    """The mark in the vhost is that of another user."""
    with member.connect(direct=True) as connection:
        channel = connection.channel()
        channel.queue_delete("dlx-proxy.user")
        arguments = {"x-queue-type": "classic", "x-expires": 90_000, "x-dead-letter-exchange": "dlx-proxy.parked", "x-dead-letter-routing-key": "b"}
        channel.queue_declare("dlx-proxy.user", durable=True, arguments=arguments)
        yield


def flood(member, _):
    """Many messages die, and nobody fetches them."""
    with member.connect() as connection:
        channel = member.prepare(connection.channel())
        for _ in range(3):
            member.reject(channel, 1100)
        yield


def overdue_begins(member):
    """A message is away for a retry, and when it is due RabbitMQ cannot move it out of its delay queue. Another one is away for longer."""
    once_more = lambda millis: member.broker.eval(f"application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {millis}).")
    with member.connect(direct=True) as direct, member.connect() as connection:
        direct.channel().exchange_delete("dlx-proxy.due")
        once_more(5000)  # Each delay queue tries it so often, if it is made now.
        channel = connection.channel()
        for queue, millis in ("orders", 100), ("later", 600_000):
            channel.queue_declare(queue, durable=True, arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": millis})
            channel.basic_publish("", queue, b"m", pika.BasicProperties(delivery_mode=2))
            got = until(lambda: next((got for got in [channel.basic_get(queue)] if got[0]), None), "a message")
            channel.basic_nack(got[0].delivery_tag, requeue=True)
        until(lambda: sum(member.metric("dlx_proxy_retries_total", 'outcome="confirmed"')) == 2, "both are away")
        once_more(180_000)


def overdue(member, _):
    """The proxy waits for four minutes before it says anything."""
    yield
    assert member.metric("dlx_proxy_retries_overdue") == [1], "what is away for longer does not count"
    with member.connect(direct=True) as connection:
        channel = connection.channel()
        channel.exchange_declare("dlx-proxy.due", "fanout", durable=True)
        channel.queue_bind("dlx-proxy.intake", "dlx-proxy.due")
    until(lambda: member.depth("orders") == 1, "it is back")
    until(lambda: member.metric("dlx_proxy_retries_overdue") == [0], "nothing is overdue")
    assert (member.depth("dlx-proxy.delay.600000"), member.depth("later")) == (1, 0)


def unmanaged(member, _):
    member.management.cut()
    yield


def hook(member, scene):
    """Nobody takes what is told of dead letters."""
    scene.hook.__exit__(None, None, None)
    with member.connect() as connection:
        member.reject(member.prepare(connection.channel()), 20)
    yield


def expiring(member, _):
    """The certificate for clients is replaced by one for ten days."""
    member.present("soon")
    yield


def untrusted(member, _):
    """The broker's certificate is signed by somebody else than whom the proxy trusts, from now on."""
    member.trust("stranger")
    until(lambda: "certificates are read anew" in member.proxy.text(), "it is noticed")
    member.cable.cut()
    member.cable.mend()
    yield


FAULTS = [
    Fault("away", away, {"DlxProxyLinkDown", "DlxProxyClientsRefused", "DlxProxyIntakeNotConsumed", "DlxProxyNodeDown"}),
    Fault("unsteady", unsteady, {"DlxProxyLinkUnsteady"}, passing={"DlxProxyLinkDown", "DlxProxyIntakeNotConsumed"}),
    Fault("killed", killed, {"DlxProxyDown"}),
    Fault("parking", parking, {"DlxProxyDeadLettersParked", "DlxProxyParkedWaiting", "DlxProxyParkedStaying"}, {"parked_retry": "1s"}, passing={"DlxProxyPublisherBlocked"}),
    Fault("doubt", doubt, {"DlxProxyRejectsWithheld"}, {"muting": True}, passing={"DlxProxyDown"}, quiet=True),
    Fault("full", full, {"DlxProxyLimitMet", "DlxProxyLeftToBroker"}, {"retained_bytes": "1KiB", "retained_bytes_per_connection": "32MiB"}),
    Fault("alarm", alarm, {"DlxProxyPublisherBlocked", "DlxProxyBrokerAlarm", "DlxProxyDeadLettersRefused", "DlxProxyLeftToBroker"}, passing={"DlxProxyRejectsWithheld"}),
    Fault("dead", dead, {"DlxProxyOwnQueueDown"}),
    Fault("foreign", foreign, {"DlxProxyVhostNative"}, passing={"DlxProxyLinkDown", "DlxProxyIntakeNotConsumed"}),
    Fault("stranger", stranger, {"DlxProxyOtherUser"}, patience=60),
    Fault("flood", flood, {"DlxProxyDeadLettersSuddenly", "DlxProxyDeadLettersPileUp"}, {"managed": True}),
    Fault("unmanaged", unmanaged, {"DlxProxyManagementDown"}, {"managed": True}),
    Fault("expiring", expiring, {"DlxProxyCertificateExpires"}, {"secured": True}),
    Fault(
        "untrusted",
        untrusted,
        {"DlxProxyBrokerTlsFails", "DlxProxyLinkDown", "DlxProxyIntakeNotConsumed", "DlxProxyNodeDown"},
        {"secured": True},
        passing={"DlxProxyLinkUnsteady"},
    ),
    Fault("hook", hook, {"DlxProxyHookDropped"}),
    Fault("overdue", overdue, {"DlxProxyRetriesOverdue"}, {"managed": True}, quiet=True, begin=overdue_begins, patience=360),
]
NOT_HERE = {
    "DlxProxyDeadLettersLeft": "it takes a day",
    "DlxProxyExternalRefused": "it takes a client that chooses what it is not offered, which pika does not",
}
"""Why the fault is not made: promtool's tests have these alerts."""
