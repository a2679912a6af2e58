"""Queues whose dead-letter exchange comes from a policy of the broker, handed to the proxy and back by policies of its own."""

import contextlib
import json
import signal
import subprocess
import time
import types
import urllib.parse
import urllib.request

import pytest

from cable import Cable
from console import answer, command, management, of_vhost, quoted, typed
from lab import DEADLINE, Via, until
from scene import INTAKE, PARKED, PREFIX, broker_policy, one_of, policies, user

OURS = f"{PREFIX}.adopted/target"
OF_FILE = f"{PREFIX}.adopted-proxy-policy/mine"
PATTERN = f"^{PREFIX}-source"


def asked(via, path):
    """What the management API says."""
    scheme, rest = management(via).split("://")
    login, place = rest.split("@")
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, f"{scheme}://{place}", *login.split(":"))
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    with opener.open(f"{scheme}://{place}/api/{path}", timeout=DEADLINE) as found:
        return json.load(found)


def ours(own):
    """The policies of the proxy at the broker, by name."""
    listed = asked(own.via, f"policies/{quoted(own.via.vhost)}")
    return {one["name"]: one for one in listed if one["name"].startswith(PREFIX)}


def applied(own):
    """The policy that the queue follows. RabbitMQ lists a policy before it has told the queues."""
    return asked(own.via, f"queues/{quoted(own.via.vhost)}/{own.source}").get("policy")


def queues(own, *words, code=0):
    done = command(own, *words, group="queues")
    assert code is None or done[0] == code, done
    return done[1] + done[2]


def state(own, queue):
    """How the proxy handles it, and why."""
    handled = answer(own.via, of_vhost(own.via, "/queues"))["queues"]
    return next(((one["state"], one["cause"]) for one in handled if one["queue"] == queue), None)


def comes(own, queue, expected):
    until(lambda: state(own, queue) == expected, lambda: f"{state(own, queue)} of {queue}", pause=0.2, deadline=25)


def seen(message):
    """What a consumer sees of it, without times."""
    headers = {name: value for name, value in message.properties.headers.items() if name != "x-delivery-count"}
    headers["x-death"] = [{name: value for name, value in death.items() if name != "time"} for death in headers["x-death"]]
    method = message.method
    return method.exchange, method.routing_key, message.body, headers, message.properties.expiration, message.properties.delivery_mode


def dead(own):
    """The next dead letter, as a client of the proxy gets it."""
    return one_of(own.channel, own.dead, auto_ack=True)


def through_the_proxy(own, reason):
    return own.proxy.metric("dlx_proxy_messages_dead_lettered_total", vhost=own.via.vhost, queue=own.source, reason=reason, outcome="confirmed")


def counts(own, reason, number):
    """So many have gone through it. It counts a dead letter when that is confirmed, and a consumer may have it before."""
    until(lambda: (through_the_proxy(own, reason) or 0) >= number, lambda: f"{through_the_proxy(own, reason)} of {number}")
    return through_the_proxy(own, reason) == number


@pytest.fixture
def adopting(own):
    """A queue without arguments for it, whose policy makes messages expire into a direct exchange."""
    own.restart(management_url=management(own.via))
    own.dead, own.dlx = own.queue("dead"), own.exchange("dlx", "direct")

    def begin(kind="classic", key=None, ttl=600, **more):
        own.source = own.made("source", kind=kind)
        for routed in {key or own.source, own.source, "cc"}:
            own.bind(own.dead, own.dlx, routed)
        definition = {"dead-letter-exchange": own.dlx, "message-ttl": ttl} | ({"dead-letter-routing-key": key} if key else {}) | more
        return broker_policy(own, "target", PATTERN, definition)

    own.begin = begin
    yield own
    for name in ours(own):
        own.via.broker.clear_policy(own.via.vhost, name)


@pytest.mark.parametrize("key", [None, "dead"], ids=["keyless", "key"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_adopted_queue_dies_through_the_proxy_as_it_did_at_the_broker(adopting, kind, key):
    own = adopting
    with own.begin(kind, key):
        headers = {"CC": ["cc"], "mine": 1}
        own.publish("", own.source, headers=headers)
        natively = seen(dead(own))
        assert state(own, own.source) in (None, ("rejects-only", "broker-policy"))

        plan = queues(own, "adopt", own.source, "--dry-run")
        assert f"Plan: policy {OURS} for 1 queue ({own.source})" in plan and not ours(own)
        assert "add --approve" in queues(own, "adopt", own.source, code=64) and not ours(own)
        with own.via.direct.channel() as channel:
            own.publish("", own.source, b"before", channel=channel, headers=headers)
        assert f"Done: policy {OURS}" in queues(own, "adopt", own.source, "--approve")
        policy = ours(own)[OURS]
        assert (policy["pattern"], policy["priority"], policy["definition"]["message-ttl"]) == (PATTERN, 1, 600)
        assert dead(own).body == b"before"
        comes(own, own.source, ("full", "adopted"))
        assert "adopts it already" in queues(own, "adopt", own.source, "--approve")

        before = through_the_proxy(own, "expired") or 0
        own.publish("", own.source, headers=headers)
        assert seen(dead(own)) == natively
        assert counts(own, "expired", before + 1)
        own.die(own.source, headers=headers)
        assert dead(own).properties.headers["x-death"][0]["reason"] == "rejected"
        assert counts(own, "rejected", 1)

        assert "Done: policy" in queues(own, "release", own.source, "--approve")
        assert not ours(own)
        comes(own, own.source, ("rejects-only", "broker-policy"))
        own.publish("", own.source, headers=headers)
        assert seen(dead(own)) == natively
        assert counts(own, "expired", before + 1)
    assert own.depth(PARKED) == own.depth(INTAKE) == own.depth(own.dead) == 0


def test_messages_that_wait_in_the_queue_die_through_the_proxy(adopting):
    own = adopting
    with own.begin(ttl=3000):
        own.fill(own.source, [b"%d" % number for number in range(200)])
        queues(own, "adopt", "--all", PATTERN, "--approve")
        assert sorted(int(message.body) for message in own.all_of(own.dead, 200)) == list(range(200))
        assert through_the_proxy(own, "expired") > 0


def test_a_user_without_the_tag_is_told(adopting, via):
    own = adopting
    with own.begin(), user(via, "reader") as name:
        tag = lambda *tags: via.broker.eval(f'rabbit_auth_backend_internal:set_tags(<<"{name}">>, [{", ".join(tags)}], <<"tests">>).')
        tag("management")
        url = management(via)
        own.restart(management_url=url.replace(url.split("://")[1].split("@")[0], f"{name}:secret"))
        words = f"the user {name} of `management-url` needs the tag `policymaker`"
        assert f"Missing: {words}" in queues(own, "adopt", own.source, "--dry-run", code=65)
        assert words in queues(own, "adopt", own.source, "--approve", code=1)
        status = command(own, "adopt", own.source, "--approve", "--username", name, "--password", "secret", group="queues")
        assert status[0] == 1 and f"your user {name} needs the tag" in status[2] and not ours(own)
        tag("policymaker")
        queues(own, "adopt", own.source, "--approve")
        assert ours(own)
    own.restart(management_url=management(own.via))


def test_the_policy_of_the_user_is_followed(adopting):
    own = adopting
    broker, vhost = own.via.broker, own.via.vhost
    with own.begin():
        queues(own, "adopt", own.source, "--approve")
        broker.set_policy(vhost, "target", PATTERN, {"dead-letter-exchange": "", "dead-letter-routing-key": own.dead, "message-ttl": 50}, 4)
        until(lambda: ours(own)[OURS]["priority"] == 5, "ours follows", pause=0.2, deadline=25)
        until(lambda: applied(own) == OURS, "the queue has it")
        assert ours(own)[OURS]["definition"] == {"dead-letter-exchange": f"{PREFIX}/", "dead-letter-routing-key": own.dead, "message-ttl": 50}
        own.publish("", own.source, b"followed")
        assert dead(own).body == b"followed" and counts(own, "expired", 1)

        comes(own, own.source, ("full", "adopted"))
        with broker_policy(own, "late", PATTERN, {"dead-letter-exchange": own.dlx}, 9):
            own.proxy.says("another policy applies instead of one of the proxy's")
            comes(own, own.source, ("rejects-only", "broker-policy"))
        with broker_policy(own, "beside", PATTERN, {"dead-letter-exchange": own.dlx}, 5):
            own.proxy.says("no priority is free")
    until(lambda: not ours(own), "ours goes with the policy that it was made from", pause=0.2, deadline=25)


def test_rounds_of_adopting_and_releasing_leave_nothing(adopting):
    own = adopting
    with own.begin(ttl=10):
        exchanges = lambda: {name for name in own.via.broker.exchanges(own.via.vhost) if name.startswith(PREFIX)}
        queues(own, "adopt", "--all", PATTERN, "--approve")
        before = exchanges()
        for number in range(20):
            own.publish("", own.source, b"%d" % number)
            queues(own, "release", "--all", PATTERN, "--approve")
            assert not ours(own)
            own.publish("", own.source, b"%d" % (number + 20))
            queues(own, "adopt", "--all", PATTERN, "--approve")
            assert list(ours(own)) == [OURS]
        assert sorted(int(message.body) for message in own.all_of(own.dead, 40)) == list(range(40))
        queues(own, "release", "--all", PATTERN, "--approve")
        assert exchanges() == before and not ours(own)


def test_while_no_proxy_runs_dead_letters_wait_and_without_its_exchanges_they_are_discarded(adopting):
    own = adopting
    with own.begin(ttl=10):
        queues(own, "adopt", own.source, "--approve")
        own.stop()
        with own.via.direct.channel() as channel:
            own.publish("", own.source, b"waits", channel=channel)
        own.has(INTAKE, 1)
        own.delete(exchanges=[f"{PREFIX}/{own.dlx}"])
        with own.via.direct.channel() as channel:
            own.publish("", own.source, b"discarded", channel=channel)
        own.has(own.source, 0)
        assert own.depth(INTAKE) == 1
        # Its intake exchange is made again by whoever reads the policies.
        own.start(management_url=management(own.via))
        assert dead(own).body == b"waits"
        until(lambda: f"{PREFIX}/{own.dlx}" in own.via.broker.exchanges(own.via.vhost), "the intake exchange")
        with contextlib.closing(own.via.connect(direct=True)) as connection:
            own.publish("", own.source, b"again", channel=connection.channel())
        assert dead(own).body == b"again"


def test_nothing_is_lost_when_queues_are_adopted_and_released_under_load(adopting):
    own = adopting
    with own.begin(ttl=1), contextlib.closing(own.via.connect(direct=True)) as connection:
        channel, sent, rounds = connection.channel(), 0, 0
        channel.confirm_delivery()
        running = []
        while rounds < 6 or running:
            for _ in range(100):
                own.publish("", own.source, b"%d" % sent, channel=channel)
                sent += 1
            if running and running[0].poll() is not None:
                assert running.pop().returncode == 0
            if not running and rounds < 6:
                verb = ("adopt", "release")[rounds % 2]
                running.append(subprocess.Popen(**typed(own, verb, own.source, "--approve", group="queues"), stdout=subprocess.DEVNULL))
                rounds += 1
        bodies = [int(message.body) for message in own.all_of(own.dead, sent)]
        assert sorted(bodies) == list(range(sent))
        assert 0 < through_the_proxy(own, "expired") < sent


def test_a_queue_that_the_broker_confirms_is_adopted_only_by_name(adopting):
    own = adopting
    with own.begin("quorum", **{"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}):
        assert "the broker confirms its dead letters itself" in queues(own, "adopt", "--all", PATTERN, "--approve") and not ours(own)
        queues(own, "adopt", own.source, "--approve")
        assert ours(own)[OURS]["definition"]["dead-letter-exchange"] == f"{PREFIX}++/{own.dlx}"
        own.publish("", own.source, b"confirmed")
        assert dead(own).body == b"confirmed" and counts(own, "expired", 1)


def test_what_its_exchange_does_not_take_is_parked_and_doctor_names_an_intake_exchange_that(adopting):
    own = adopting
    with own.begin(ttl=10):
        queues(own, "adopt", own.source, "--approve")
        own.delete(exchanges=[own.dlx])
        own.publish("", own.source, b"parked")
        assert [message.body for message in own.parked(1)] == [b"parked"]
        assert own.exchange("dlx", "direct") == own.dlx


def test_many_queues_and_policies_are_adopted_in_time(adopting):
    own = adopting
    broker, vhost = own.via.broker, own.via.vhost
    made = {f"target{number}": f"{PREFIX}-many{number:02}-" for number in range(20)}
    for name, pattern in made.items():
        broker.set_policy(vhost, name, f"^{pattern}", {"dead-letter-exchange": own.dlx, "message-ttl": 60_000})
    with own.via.direct.channel() as channel:
        for pattern in made.values():
            for number in range(50):
                own.queues.append(f"{pattern}{number}")
                channel.queue_declare(own.queues[-1], durable=True)
    try:
        for verb, expected in (("adopt", 20), ("release", 0)):
            begun = time.monotonic()
            queues(own, verb, "--all", f"^{PREFIX}-many", "--approve")
            print(f"{verb} took {time.monotonic() - begun:.1f} s")
            assert len(ours(own)) == expected and time.monotonic() - begun < 60
    finally:
        for name in made:
            broker.clear_policy(vhost, name)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_policy_of_the_proxy_is_adopted_where_the_broker_has_none(own, tmp_path, kind):
    def write(pattern, target="dead", file="dlx-proxy.toml"):
        rules = {"mine": (pattern, {"dead-letter-exchange": "", "dead-letter-routing-key": own.name(target)})} if pattern else {}
        return policies(tmp_path / file, own.via.vhost, **rules)

    def reload():
        times = own.proxy.text().count("settings reloaded")
        own.proxy.process.send_signal(signal.SIGHUP)
        until(lambda: own.proxy.text().count("settings reloaded") > times, own.proxy.text)

    def expires(target="dead"):
        own.publish("", own.source, b"expired", expiration="10")
        message = one_of(own.channel, own.name(target), auto_ack=True)
        assert message.body == b"expired" and message.properties.headers["x-death"][0]["queue"] == own.source

    own.restart(config=write(PATTERN), management_url=management(own.via))
    own.dead, own.source = own.queue("dead"), own.made("source", kind=kind)
    own.queue("other")
    try:
        own.publish("", own.source, b"discarded", expiration="10")
        own.has(own.source, 0)
        with broker_policy(own, "plain", PATTERN, {"max-length": 1000}):
            assert "it has the policy plain of the broker" in queues(own, "adopt", own.source, "--approve") and not ours(own)
        assert f"Done: policy {OF_FILE}" in queues(own, "adopt", own.source, "--approve")
        comes(own, own.source, ("full", "adopted"))
        expires()
        assert counts(own, "expired", 1) and own.depth(own.dead) == 0

        # Its target is the one of the file at each death, and its pattern follows when the file is read again.
        write(PATTERN, "other")
        reload()
        expires("other")
        write(PATTERN[:-1])
        reload()
        until(lambda: ours(own)[OF_FILE]["pattern"] == PATTERN[:-1], "ours follows", pause=0.2, deadline=25)
        expires()

        # Of a proxy with another file it is left alone, and a policy of the user hides it.
        log = tmp_path / "second"
        second = own.another(log, config=write(f"^{PREFIX}-else", file="second.toml"), management_url=management(own.via))
        try:
            until(lambda: "of this proxy says something else" in log.read_text(), log.read_text, deadline=25)
        finally:
            second.stop()
        assert ours(own)[OF_FILE]["pattern"] == PATTERN[:-1]
        with broker_policy(own, "late", PATTERN, {"max-length": 1000}):
            own.proxy.says("another policy applies instead of one of the proxy's")
            comes(own, own.source, ("rejects-only", "proxy-policy"))

        write(None)
        reload()
        until(lambda: not ours(own), "ours goes with the policy that it was made from", pause=0.2, deadline=25)
        assert own.depth(PARKED) == own.depth(INTAKE) == 0
    finally:
        for name in ours(own):
            own.via.broker.clear_policy(own.via.vhost, name)


def cabled(own):
    """A cable to the management API, and the `management-url` at its near end."""
    url = urllib.parse.urlsplit(management(own.via))
    cable = Cable((url.hostname, url.port))
    return cable, url._replace(netloc="%s:%s@%s:%d" % (url.username, url.password, *cable.address)).geturl()


@pytest.mark.parametrize("has_put", [False, True], ids=["before the policy", "behind the policy"])
def test_a_proxy_that_is_killed_within_an_adoption_leaves_all_or_nothing(adopting, tmp_path, has_put):
    own = adopting
    cable, url = cabled(own)
    killed = own.another(tmp_path / "killed", management_url=url)
    try:
        with own.begin(ttl=10):
            at_killed = types.SimpleNamespace(via=Via(own.via.broker, killed, own.via.vhost))
            if not has_put:
                cable.held = b"PUT "
            running = subprocess.Popen(**typed(at_killed, "adopt", own.source, "--approve", group="queues"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until(lambda: applied(own) == OURS if has_put else cable.has_held.is_set(), "the step")
            killed.kill()
            running.wait(DEADLINE)
            assert f"{PREFIX}/{own.dlx}" in own.via.broker.exchanges(own.via.vhost)
            assert list(ours(own)) == [OURS] * has_put
            own.publish("", own.source, b"first")
            assert dead(own).body == b"first" and (counts(own, "expired", 1) if has_put else not through_the_proxy(own, "expired"))
            said = queues(own, "adopt", own.source, "--approve")
            assert ("adopts it already" if has_put else "Done: policy") in said and list(ours(own)) == [OURS]
            before = through_the_proxy(own, "expired") or 0
            own.publish("", own.source, b"second")
            assert dead(own).body == b"second" and counts(own, "expired", before + 1)
            queues(own, "release", own.source, "--approve")
            assert not ours(own)
    finally:
        killed.kill()
        cable.cut()


def test_a_policy_that_another_proxy_releases_does_not_come_back(adopting, tmp_path):
    """The other one has read that it has to follow, and is held before it does."""
    own = adopting
    cable, url = cabled(own)
    with own.begin():
        queues(own, "adopt", own.source, "--approve")
        own.restart()  # this one follows nothing
        late = own.another(tmp_path / "late", management_url=url)
        try:
            cable.held = f"GET /api/policies/{quoted(own.via.vhost)}".encode()
            own.via.broker.set_policy(own.via.vhost, "target", PATTERN, {"dead-letter-exchange": own.dlx, "message-ttl": 50}, 4)
            until(cable.has_held.is_set, "it is about to follow", deadline=25)
            own.via.broker.clear_policy(own.via.vhost, OURS)
            cable.has_held.clear()
            cable.held = b"GET /api/policies HTTP"
            cable.goes_on.set()
            until(cable.has_held.is_set, "its next reading", deadline=25)
            assert not ours(own)
        finally:
            late.stop()
            cable.cut()
