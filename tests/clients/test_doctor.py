"""What `dlx-proxy doctor` finds, and that it changes nothing: each fault is made, found in its own words, mended by the command that is advised, and
not found any more."""

import contextlib
import json
import re
import shlex
import socket
import subprocess
import threading

import pytest

from console import management
from lab import BINARY, DEADLINE, Via, environment, inherited
from scene import TARGETS

pytestmark = pytest.mark.any_broker

PREFIX, USER, CLIENT, VHOST = "doctor", "doctor", "doctor-client", "doctor"
RIGHT = (rf"^{PREFIX}", ".*", rf"^{PREFIX}")
AS_CLIENT = ("--username", CLIENT, "--password", "secret")
ABOUT = f"user {CLIENT}, vhost {VHOST}"
WELL = "The client may write to the intake exchanges."


class Ward:
    """A vhost, the proxy's user and a client, all as they should be; no proxy runs."""

    def __init__(self, broker):
        self.broker, self.via = broker, Via(broker, vhost=VHOST)
        rights = [(USER, VHOST, *RIGHT), (CLIENT, VHOST, "^orders", rf"^(orders.*|{PREFIX}([+/].*)?)$", "^orders")]
        broker.make([VHOST], [(USER, "secret"), (CLIENT, "secret")], rights + [(broker.user, VHOST, ".*", ".*", ".*")])
        self.tag("impersonator", "management")
        self.api = ("--management-url", management(self.via))

    def tag(self, *tags):
        self.broker.eval(f'rabbit_auth_backend_internal:set_tags(<<"{USER}">>, [{", ".join(tags)}], <<"tests">>).')

    def run(self, *flags, password="secret", nodes=None, **settings):
        words = ["doctor", "--upstream", f"amqp://{USER}:{password}@{nodes or '%s:%d' % self.broker.address}", *flags]
        # Nobody listens at port 1.
        settings = {"vhosts": VHOST, "prefix": PREFIX, "admin": "127.0.0.1:1", "max_connections": 100} | settings
        done = subprocess.run([BINARY, *words], env=inherited() | environment(**settings), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
        assert not done.stderr, done.stderr
        return done

    def examine(self, *flags, **settings):
        """All findings as (kind, about, says, advice)."""
        done = self.run("--output", "json", *flags, **settings)
        report = json.loads(done.stdout)
        found = [(one["kind"], one["about"], one["says"], one.get("advice")) for one in report["findings"]]
        assert report["problems"] == sum(kind == "problem" for kind, *_ in found)
        assert (done.returncode == 64) == (report["problems"] > 0), done.returncode
        return found

    def finds(self, kind, about, *words, asked=(), **settings):
        """The one finding of that kind about that, which has these words in what it says or advises: what it advises."""
        found = self.examine(*asked, **settings)
        matching = [(says, advice) for one, where, says, advice in found if one == kind and about in where]
        assert len(matching) == 1, found
        ((says, advice),) = matching
        assert all(word in f"{says} {advice}" for word in words), matching
        return advice

    def has_no_problem(self, *asked):
        found = self.examine(*asked)
        assert not [one for one in found if one[0] == "problem"], found

    def follow(self, advice):
        """Does what was advised: a command of rabbitmqctl."""
        words = shlex.split(advice)
        assert words[0] == "rabbitmqctl", advice
        self.broker.ctl("-q", *words[1:])


@pytest.fixture
def ward(via):
    ward = Ward(via.broker)
    yield ward
    ward.via.close()
    via.broker.unmake([VHOST], [USER, CLIENT])


def test_all_is_well(ward, via):
    state = lambda: (sorted(ward.broker.queues(VHOST)), sorted(ward.broker.exchanges(VHOST)))
    before = state()
    found = ward.examine(*ward.api, *AS_CLIENT)
    assert {(kind, about) for kind, about, *_ in found if kind != "ok"} <= {("note", "proxy at 127.0.0.1:1"), ("note", "feature flags")}, found
    assert re.fullmatch(rf"RabbitMQ {re.escape(ward.broker.version)} answers after \d+ ms\.", found[2][2]), found
    assert {"The proxy's user may do what the proxy does.", "It has the tag `impersonator`.", WELL} <= {says for _, _, says, _ in found}
    assert state() == before, "it makes nothing, and removes nothing"
    ward.finds("ok", "proxy at", "It runs, and is ready.", admin="%s:%d" % via.proxy.admin)


@pytest.mark.parametrize(
    "rights, missing",
    [
        ((r"^nothing$", ".*", RIGHT[2]), "configure its own queues, nor configure intake exchanges"),
        ((RIGHT[0], rf"^({PREFIX}.*|amq\.default)$", RIGHT[2]), "write to the exchanges that clients name"),
        ((RIGHT[0], ".*", rf"^{PREFIX}\."), "read intake exchanges, to bind them"),
    ],
)
def test_a_permission_that_is_missing_is_named_and_the_advice_gives_it(ward, rights, missing):
    ward.broker.permit(VHOST, USER, *rights)
    ward.follow(ward.finds("problem", f"user {USER}", f"The proxy's user may not {missing}."))
    ward.has_no_problem()


def test_a_client_may_too_little_or_too_much(ward):
    ward.broker.permit(VHOST, CLIENT, "^orders", "^orders", "^orders")
    ward.finds("problem", f"user {CLIENT}", "stay native", f"{PREFIX}([+/].*)?", asked=AS_CLIENT)
    ward.broker.permit(VHOST, CLIENT, ".*", ".*", ".*")
    ward.finds("note", f"user {CLIENT}", "read and configure and write to the proxy's own queues", asked=AS_CLIENT)
    ward.finds("problem", f"user {CLIENT}", "is not let in", asked=("--username", CLIENT, "--password", "wrong"))


def test_the_command_adds_to_the_rights_of_a_client(ward):
    asked, own = ("--client-user", CLIENT, *ward.api), rf"^{PREFIX}$|^{PREFIX}[+/]"
    ward.finds("ok", ABOUT, WELL, asked=asked)
    for rights, write in (
        (("^orders", r"^(orders.*|amq\.default)$", "^$"), rf"{own}|^(orders.*|amq\.default)$"),
        (("", "", "^it's"), own),
        (("^orders", rf"(?i)^{PREFIX}/other", "^orders"), rf"{own}|(?i)^{PREFIX}/other"),
    ):
        ward.broker.permit(VHOST, CLIENT, *rights)
        ward.follow(ward.finds("problem", ABOUT, "stay native", asked=asked))
        has = json.loads(ward.broker.ctl("-q", "list_user_permissions", CLIENT, "--formatter", "json"))
        assert [(one["configure"], one["write"], one["read"]) for one in has] == [(rights[0], write, rights[2])]
        found = ward.examine(*asked, *AS_CLIENT)
        assert [(kind, says) for kind, about, says, _ in found if about == ABOUT] == [("ok", WELL)] * 2, found


def test_who_may_not_see_the_rights_of_a_client_is_told_so(ward):
    asked, about = ("--client-user", CLIENT), f"user {CLIENT}"
    ward.finds("problem", about, "`management-url` is not set", "administrator", asked=asked)
    no_administrator = "http://%s:secret@%s" % (USER, ward.api[1].split("@")[1])
    ward.finds("problem", about, "it is no administrator", asked=(*asked, "--management-url", no_administrator))
    ward.finds("problem", "user no/body", "There is no such user.", asked=("--client-user", "no/body", *ward.api))
    ward.finds("problem", f"user {CLIENT}, vhost /", "no permissions there", f"'^{PREFIX}$|^{PREFIX}[+/]|…'", asked=(*asked, *ward.api), vhosts=f"{VHOST},/")


def test_the_proxys_user_is_not_let_in_or_has_no_tag(ward):
    ward.finds("problem", f"vhost {VHOST}", f"The proxy's user {USER} is not let in", password="wrong")
    ward.finds("problem", "vhost doctor-nowhere", "is not let in", vhosts="doctor-nowhere")
    ward.tag()
    ward.finds("note", f"user {USER}", "does not have the tag `impersonator`")


@contextlib.contextmanager
def somebody(greeting):
    """A port where somebody accepts who is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(8)
                        peer.sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_a_node_does_not_answer_as_a_broker_does(ward):
    good = "%s:%d" % ward.broker.address
    ward.finds("problem", "node 127.0.0.1:1", "Connection refused", nodes=f"127.0.0.1:1,{good}")
    for greeting, words in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not RabbitMQ"), (b"", "without a word")):
        with somebody(greeting) as port:
            ward.finds("problem", f"node 127.0.0.1:{port}", words, nodes=f"{good},127.0.0.1:{port}")


def test_a_policy_for_all_queues(ward):
    ward.broker.set_policy(VHOST, "for-all", "", {"message-ttl": 60_000})
    ward.follow(ward.finds("problem", "policy for-all", f"{PREFIX}.intake", "messages would expire", asked=ward.api))
    ward.has_no_problem(*ward.api)
    ward.finds("problem", "management API", "401", asked=("--management-url", "http://guest:wrong@" + ward.api[1].split("@")[1]))


def test_intake_exchanges_that_nothing_uses(ward):
    """The proxy does not delete them: a client may declare a queue with one at any moment."""
    about, channel = f"intake exchanges, vhost {VHOST}", ward.via.direct.channel()
    for name in "gone", "queue", "policy", "%2F%27":
        channel.exchange_declare(f"{PREFIX}/{name}", "fanout", internal=True)
    channel.exchange_declare(f"{PREFIX}.delay")
    channel.queue_declare("used", durable=True, arguments={"x-dead-letter-exchange": f"{PREFIX}/queue"})
    ward.broker.set_policy(VHOST, "dead", "^none$", {"dead-letter-exchange": f"{PREFIX}/policy"})
    ward.finds("note", about, f"2 that no queue and no policy names: {PREFIX}/%2F%27, {PREFIX}/gone.", "delete them", asked=ward.api)
    for name in "gone", "%2F%27":
        channel.exchange_delete(f"{PREFIX}/{name}")
    ward.finds("ok", about, "A queue or a policy names each of them.", asked=ward.api)


def test_a_queue_of_the_proxy_s_own_is_dead_and_something_is_parked(ward):
    """A declare says that it is empty."""
    channel, parked = ward.via.direct.channel(), f"{PREFIX}.parked"
    channel.queue_declare(f"{PREFIX}.intake", durable=True, arguments={"x-queue-type": "quorum", "x-single-active-consumer": True})
    channel.queue_declare(parked, durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_consume(f"{PREFIX}.intake", lambda *_: None)
    channel.confirm_delivery()
    channel.basic_publish("", parked, b"m")
    ward.finds("note", f"queue {parked}", "1 dead letter is parked: no queue took it.")
    ward.has_no_problem()
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{VHOST}">>, queue, <<"{parked}">>}}), P = amqqueue:get_pid(Q)'
    for fault, says in (("sys:suspend(element(1, P))", "It does not answer"), ("sys:resume(element(1, P)), ra:stop_server(quorum_queues, P)", "It is dead")):
        ward.broker.eval(f"{found}, {fault}.")
        ward.finds("problem", f"queue {parked}", says, "restart the node")
    ward.broker.eval(f"{found}, ra:restart_server(quorum_queues, P).")


def test_who_could_forge_the_record(ward):
    """Its entries are known by their user-id, which the protocol of streams does not check."""
    ward.finds("ok", f"record {PREFIX}.redeclared", "No node takes clients that speak the protocol of streams.", asked=ward.api, lenient=TARGETS)
    assert "record" not in str(ward.examine(*ward.api, lenient=""))


def test_people_read_a_table(ward):
    done = ward.run(prefix="dlx-proxy")
    # The names of the default prefix are not permitted.
    assert done.returncode == 64, done
    assert re.search(r"^problem  user doctor, vhost doctor +The proxy's user may not configure its own queues", done.stdout, re.M), done.stdout
    assert f"→ rabbitmqctl set_permissions -p doctor {USER} '^dlx-proxy' '.*' '^dlx-proxy'" in done.stdout
