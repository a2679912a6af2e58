"""Ready means working: while the broker refuses the proxy's user, or a queue of the proxy's own is dead, silent, deleted or bounded by a policy, `/readyz`
answers 503 with what is wrong, metric and log say it too, and the proxy is ready again without anybody's help."""

import contextlib
import re
import subprocess

import pytest

from console import management
from lab import BINARY, DEADLINE, Proxy, Via, environment, inherited, until
from scene import INTAKE, PARKED, PREFIX, Scene, broker_policy

pytestmark = pytest.mark.any_broker

# --- Queues of the proxy's own ----------------------------------------------------------------------------------------------------------------

DELAYED = f"{PREFIX}.delay.300000"
LOUD = 60
"""Seconds until it has to be said: half a minute, and some more on a machine that is slow."""


def in_the_node(own, queue, program):
    """Erlang about a quorum queue: Q, its server P, the name of that."""
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{own.via.vhost}">>, queue, <<"{queue}">>}}), P = amqqueue:get_pid(Q)'
    return own.via.broker.eval(f"{found}, {program}.")


# 3.x wants the name of the queue, 4.x the queue.
BOOKS = ", ".join(f'catch rabbit_amqqueue:internal_delete({it}, <<"a test">>)' for it in ("Q", "amqqueue:get_name(Q)"))
FAULTS = {
    # A queue without a process: the broker answers by the end of the connection.
    "is dead": ("ra:stop_server(quorum_queues, P)", "ra:restart_server(quorum_queues, P)"),
    "does not answer": ("sys:suspend(element(1, P))", "sys:resume(element(1, P))"),
    # Of two members one is on a node that is not there.
    "does not answer: no majority": ("catch ra:add_member(P, {element(1, P), 'ghost@localhost'}, 500)", f"ra:force_delete_server(quorum_queues, P), {BOOKS}, ok"),
    "does not answer: classic": ("sys:suspend(P)", "sys:resume(P)"),
}


def well(own, *queues):
    up = lambda queue: own.metric("dlx_proxy_own_queue_up", queue=queue)
    until(lambda: all(up(queue) == 1 for queue in queues) and own.proxy.is_ready(), lambda: own.proxy.get("/readyz")[1] + own.proxy.text())


def loud(own, queue, words):
    def heard():
        status, said = own.proxy.get("/readyz")
        named = f"queue {queue} of vhost {own.via.vhost} {words}" in said
        return status == 503 and named and own.metric("dlx_proxy_own_queue_up", queue=queue) == 0

    until(heard, lambda: own.proxy.get("/readyz")[1] + own.proxy.text(), deadline=LOUD, pause=0.2)
    assert f"queue={queue}" in own.proxy.text()


@pytest.mark.parametrize("own, troubles", [
    ({}, {PARKED: "is dead", INTAKE: "does not answer", DELAYED: "does not answer"}),
    ({}, {INTAKE: "is dead", PARKED: "does not answer: no majority"}),
    ({"intake_queue_type": "classic"}, {PARKED: "does not answer: classic"}),
], indirect=["own"], ids=["dead and silent", "no majority", "classic"])
def test_a_queue_of_the_proxys_own_is_in_trouble(own, troubles):
    if DELAYED in troubles:
        queue = own.queue("work", retry_min=300_000)
        own.publish("", queue)
        own.give_back(queue)
    well(own, *troubles)
    with contextlib.ExitStack() as mended:
        for queue, trouble in troubles.items():
            mended.callback(in_the_node, own, queue, FAULTS[trouble][1])
            in_the_node(own, queue, FAULTS[trouble][0])
        for queue, trouble in troubles.items():
            loud(own, queue, trouble.partition(":")[0])
    well(own, *troubles)


def test_one_that_is_deleted_or_bounded_by_a_policy(own):
    well(own, INTAKE, PARKED)
    # One that is deleted is made again: nobody consumes it, so the broker tells nobody that it is gone.
    own.delete(PARKED)
    until(lambda: re.search(f"somebody deleted a queue .*queue={PARKED}", own.proxy.text()), own.proxy.text, pause=0.2)
    until(lambda: PARKED in own.via.broker.queues(own.via.vhost), own.proxy.text, pause=0.2)
    well(own, INTAKE, PARKED)
    own.restart(management_url=management(own.via))
    well(own, INTAKE, PARKED)
    with broker_policy(own, "everything-expires", ".*", {"message-ttl": 60_000}, apply_to="all"):
        loud(own, PARKED, "loses messages by policy everything-expires")
        with broker_policy(own, "own-of-the-proxy", f"^{PREFIX}", {"max-length": 2_000_000_000}, priority=999):
            well(own, PARKED)


# --- The proxy's user -------------------------------------------------------------------------------------------------------------------------

VHOST, USER, EVE, NAMES = "refused", "refused", "refused-eve", "refused"
RIGHT = (f"^{NAMES}", ".*", f"^{NAMES}")
ADVICE = f"set_permissions -p {VHOST} {USER} '^{NAMES}' '.*' '^{NAMES}'"


@pytest.fixture
def start(via, tmp_path):
    """Starts a proxy with a user of its own before a vhost that is in `vhosts`."""
    users, started = [(USER, "secret"), (EVE, "secret")], []
    via.broker.make([VHOST], users, [(user, VHOST, *RIGHT) for user in (USER, EVE)] + [(via.broker.user, VHOST, ".*", ".*", ".*")])

    def start(user=USER, **settings):
        settings = {"vhosts": VHOST, "prefix": NAMES, "ready_when_refused": "false"} | settings
        proxy = Proxy(f"amqp://{user}:secret@%s:%d" % via.broker.address, "full", tmp_path / f"{len(started)}.log", **environment(**settings))
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.stop()
    via.broker.unmake([VHOST], [USER, EVE])


def password(broker, password):
    broker.eval(f'rabbit_auth_backend_internal:change_password(<<"{USER}">>, <<"{password}">>, <<"tests">>).')


def works(proxy):
    until(proxy.is_ready, lambda: proxy.get("/readyz")[1] + proxy.text())


def refuse(broker, rights):
    if rights == "password":
        password(broker, "another")
    elif rights is None:
        broker._call("rabbit_auth_backend_internal:clear_permissions", USER, VHOST)
    else:
        broker.permit(VHOST, USER, *rights)


@pytest.mark.parametrize("rights, words", [
    ("password", ["Login was refused", "authenticate_user"]),
    (None, [f"access to vhost '{VHOST}' refused for user '{USER}'", ADVICE]),
    (("^$", ".*", ".*"), ["refused for user", ADVICE]),
    ((f"^{NAMES}", "^$", f"^{NAMES}"), ["refused for user", ADVICE]),
    ((f"^{NAMES}", ".*", "^$"), ["refused for user", ADVICE]),
], ids=["password", "vhost", "configure", "write", "read"])
@pytest.mark.parametrize("begun", ["new", "existing"])
def test_the_user_of_the_proxy_is_refused(via, start, rights, words, begun):
    """Where its objects are there they may be used without the right to make them: what is missing then shows later."""
    if begun == "existing":
        proxy = start()
        works(proxy)
        proxy.stop()
    refuse(via.broker, rights)
    proxy = start()
    if begun == "existing" and rights == ("^$", ".*", ".*"):
        return works(proxy)  # Whoever made the objects need not be the proxy.

    def is_said():
        status, said = proxy.get("/readyz")
        errors = [line for line in proxy.text().splitlines() if " ERROR " in line]
        return status == 503 and all(word in said and any(word in line for line in errors) for word in words)

    until(is_said, lambda: f"{words} in {proxy.get('/readyz')[1]} and in {proxy.text()}")
    assert " INFO ready" not in proxy.text() and "readiness: ready" not in proxy.text()
    password(via.broker, "secret")
    via.broker.permit(VHOST, USER, *RIGHT)
    works(proxy)


def test_who_wants_it_served_all_the_same_has_a_vhost_that_stays_native(via, start):
    refuse(via.broker, None)
    proxy = start(ready_when_refused="true")
    works(proxy)
    proxy.says("its queues stay native")
    assert " ERROR " not in proxy.text() and proxy.metric("dlx_proxy_vhost_native", vhost=VHOST) == 1
    scene = Scene(Via(via.broker, proxy, VHOST), "native")
    dead = scene.queue("dead")
    scene.die(scene.queue("work", dlx="", dlk=dead))
    scene.has(dead, 1)
    scene.via.close()
    assert not [name for name in via.broker.exchanges(VHOST) if name.startswith(NAMES)]


def test_a_second_proxy_with_another_user(via, start):
    """The same user again is none of it. When the first ones are gone, their mark goes; here by hand."""
    first = start()
    works(first)
    same, other = start(), start(EVE)

    def doctor(user):
        words = [BINARY, "doctor", "--upstream", f"amqp://{user}:secret@%s:%d" % via.broker.address]
        settings = inherited() | environment(vhosts=VHOST, prefix=NAMES, admin="127.0.0.1:1")
        return subprocess.run(words, env=settings, capture_output=True, text=True, timeout=DEADLINE).stdout

    works(same)
    words = f"proxies with another user, {USER}, work in vhost {VHOST}"
    until(lambda: words in other.get("/readyz")[1], lambda: other.get("/readyz")[1] + other.text())
    assert "proxies with another user work in this vhost" in other.text() and " INFO ready" not in other.text()
    assert [proxy.metric("dlx_proxy_other_user", vhost=VHOST) for proxy in (other, first)] == [1, 0] and first.is_ready()
    assert f"Proxies with another user, {USER}" in doctor(EVE) and "another user" not in doctor(USER)
    for proxy in first, same:
        proxy.stop()
    with Via(via.broker, vhost=VHOST).connect(direct=True) as connection:
        connection.channel().queue_delete(f"{NAMES}.user")
    works(other)
    assert f"Proxies with another user, {EVE}" in doctor(USER)
