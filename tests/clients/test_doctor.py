"""What `dlx-proxy doctor` finds, and that it changes nothing: each fault is made, found in its own words, mended by the command that is advised, and
not found any more."""

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import threading

import pika
import pytest

from lab import BINARY, DEADLINE, node_like, settings_of
from test_known import management

pytestmark = [pytest.mark.once, pytest.mark.proxied]

PREFIX, USER, CLIENT = "doctor", "doctor", "doctor-client"
RIGHT = (rf"^{PREFIX}", ".*", rf"^{PREFIX}")


class Ward:
    """A vhost, the proxy's user and a client, all as they should be; no proxy runs."""

    vhost = "doctor"

    def __init__(self, broker):
        self.broker = broker
        rights = [(USER, self.vhost, *RIGHT), (CLIENT, self.vhost, "^orders", rf"^(orders.*|{PREFIX}([+/].*)?)$", "^orders")]
        rights += [(broker.user, self.vhost, ".*", ".*", ".*")]
        broker.make([self.vhost], [(USER, "secret"), (CLIENT, "secret")], rights)
        self.tag("impersonator", "management")

    def tag(self, *tags):
        self.broker.eval(f'rabbit_auth_backend_internal:set_tags(<<"{USER}">>, [{", ".join(tags)}], <<"tests">>).')

    def run(self, *flags, password="secret", nodes=None, **settings):
        nodes = nodes or "%s:%d" % self.broker.address
        words = ["doctor", "--upstream", f"amqp://{USER}:{password}@{nodes}", *flags]
        # Nobody listens at port 1.
        settings = {"vhosts": self.vhost, "prefix": PREFIX, "admin": "127.0.0.1:1", "max_connections": 100} | settings
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DLX_PROXY_")}
        environment |= {f"DLX_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
        done = subprocess.run([BINARY, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
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

    def follow(self, advice):
        """Does what was advised: a command of rabbitmqctl."""
        words = shlex.split(advice)
        assert words[0] == "rabbitmqctl", advice
        self.broker.ctl("-q", *words[1:])

    def state(self):
        return sorted(self.broker.queues(self.vhost)), sorted(self.broker.exchanges(self.vhost))


@pytest.fixture
def ward(via):
    ward = Ward(via.broker)
    yield ward
    via.broker.unmake([ward.vhost], [USER, CLIENT])


def of(found, kind):
    return [(about, says, advice) for one, about, says, advice in found if one == kind]


def one(found, kind, about):
    matching = [(says, advice) for where, says, advice in of(found, kind) if about in where]
    assert len(matching) == 1, found
    return matching[0]


def test_all_is_well(ward):
    before = ward.state()
    found = ward.examine("--management-url", management(ward), "--username", CLIENT, "--password", "secret")
    assert not of(found, "problem"), found
    version = re.escape(ward.broker.version)
    assert re.fullmatch(rf"RabbitMQ {version} answers after \d+ ms\.", found[2][2]), found
    assert {about for about, *_ in of(found, "note")} <= {"proxy at 127.0.0.1:1", "feature flags"}
    for says in ("The proxy's user may do what the proxy does.", "It has the tag `impersonator`.", "The client may write to the intake exchanges."):
        assert says in [words for _, words, _ in of(found, "ok")]
    assert ward.state() == before, "it makes nothing, and removes nothing"


@pytest.mark.parametrize(
    "rights, missing",
    [
        ((r"^nothing$", ".*", RIGHT[2]), ["configure its own queues", "configure intake exchanges"]),
        ((RIGHT[0], rf"^({PREFIX}.*|amq\.default)$", RIGHT[2]), ["write to the exchanges that clients name"]),
        ((RIGHT[0], ".*", rf"^{PREFIX}\."), ["read intake exchanges, to bind them"]),
    ],
)
def test_a_permission_that_is_missing_is_named_and_the_advice_gives_it(ward, rights, missing):
    ward.broker.permit(ward.vhost, USER, *rights)
    says, advice = one(ward.examine(), "problem", f"user {USER}")
    assert says == f"The proxy's user may not {', nor '.join(missing)}."
    ward.follow(advice)
    assert not of(ward.examine(), "problem")


def test_the_tag_is_missing(ward):
    ward.tag()
    says, _ = one(ward.examine(), "note", f"user {USER}")
    assert "does not have the tag `impersonator`" in says


def test_a_client_may_too_little_or_too_much(ward):
    as_client = ("--username", CLIENT, "--password", "secret")
    ward.broker.permit(ward.vhost, CLIENT, "^orders", "^orders", "^orders")
    says, advice = one(ward.examine(*as_client), "problem", f"user {CLIENT}")
    assert "stay native" in says and f"{PREFIX}([+/].*)?" in advice
    ward.broker.permit(ward.vhost, CLIENT, ".*", ".*", ".*")
    says, _ = one(ward.examine(*as_client), "note", f"user {CLIENT}")
    assert "read and configure and write to the proxy's own queues" in says
    says, _ = one(ward.examine("--username", CLIENT, "--password", "wrong"), "problem", f"user {CLIENT}")
    assert "is not let in" in says


def test_the_command_adds_to_the_rights_of_a_client(ward):
    asked = ("--client-user", CLIENT, "--management-url", management(ward))
    as_client = ("--username", CLIENT, "--password", "secret")
    about = f"user {CLIENT}, vhost {ward.vhost}"
    assert one(ward.examine(*asked), "ok", about)[0] == "The client may write to the intake exchanges."
    own = rf"^{PREFIX}$|^{PREFIX}[+/]"
    for rights, write in (
        (("^orders", r"^(orders.*|amq\.default)$", "^$"), rf"{own}|^(orders.*|amq\.default)$"),
        (("", "", "^it's"), own),
        (("^orders", rf"(?i)^{PREFIX}/other", "^orders"), rf"{own}|(?i)^{PREFIX}/other"),
    ):
        ward.broker.permit(ward.vhost, CLIENT, *rights)
        says, advice = one(ward.examine(*asked), "problem", about)
        assert "stay native" in says
        ward.follow(advice)
        has = json.loads(ward.broker.ctl("-q", "list_user_permissions", CLIENT, "--formatter", "json"))
        assert [(one["configure"], one["write"], one["read"]) for one in has] == [(rights[0], write, rights[2])]
        found = ward.examine(*asked, *as_client)
        assert [says for where, says, _ in of(found, "ok") if where == about] == ["The client may write to the intake exchanges."] * 2, found
        assert not of(found, "note") or about not in [where for where, *_ in of(found, "note")], found


def test_who_may_not_see_the_rights_of_a_client_is_told_so(ward):
    about = f"user {CLIENT}"
    asked = ("--client-user", CLIENT)
    says, advice = one(ward.examine(*asked), "problem", about)
    assert "`management-url` is not set" in says and "administrator" in advice
    no_administrator = "http://%s:secret@%s" % (USER, management(ward).split("@")[1])
    says, _ = one(ward.examine(*asked, "--management-url", no_administrator), "problem", about)
    assert "it is no administrator" in says
    says, _ = one(ward.examine("--client-user", "no/body", "--management-url", management(ward)), "problem", "user no/body")
    assert says == "There is no such user."
    elsewhere = ward.examine(*asked, "--management-url", management(ward), vhosts=f"{ward.vhost},/")
    says, advice = one(elsewhere, "problem", f"user {CLIENT}, vhost /")
    assert "no permissions there" in says and f"'^{PREFIX}$|^{PREFIX}[+/]|…'" in advice


def test_nobody_is_let_in(ward):
    says, _ = one(ward.examine(password="wrong"), "problem", f"vhost {ward.vhost}")
    assert f"The proxy's user {USER} is not let in" in says
    says, _ = one(ward.examine(vhosts="doctor-nowhere"), "problem", "vhost doctor-nowhere")
    assert "is not let in" in says


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
    says, _ = one(ward.examine(nodes=f"127.0.0.1:1,{good}"), "problem", "node 127.0.0.1:1")
    assert "Connection refused" in says
    for greeting, words in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not RabbitMQ"), (b"", "without a word")):
        with somebody(greeting) as port:
            says, _ = one(ward.examine(nodes=f"{good},127.0.0.1:{port}"), "problem", f"node 127.0.0.1:{port}")
            assert words in says


def test_a_policy_for_all_queues(ward):
    asked = ("--management-url", management(ward))
    ward.broker.set_policy(ward.vhost, "for-all", "", {"message-ttl": 60_000})
    says, advice = one(ward.examine(*asked), "problem", "policy for-all")
    assert f"{PREFIX}.intake" in says and "messages would expire" in says
    ward.follow(advice)
    assert not of(ward.examine(*asked), "problem")
    says, _ = one(ward.examine("--management-url", "http://guest:wrong@" + management(ward).split("@")[1]), "problem", "management API")
    assert "401" in says


def test_the_name_of_a_policy_writes_no_lines(ward):
    """A policymaker chooses it."""
    name = "x\nok       everything is fine\x1b[2J\x1b]0;pwned\x07\u202e\n "
    ward.broker.set_policy(ward.vhost, name, f"^{PREFIX}", {"message-ttl": 1000}, priority=5)
    asked = ("--management-url", management(ward))
    findings = ward.examine(*asked)
    says, _ = one(findings, "problem", f"policy {name}")
    assert "messages would expire" in says
    done = ward.run("--output", "table", *asked)
    lines = done.stdout.split("\n")
    beginnings = {"ok", "note", "problem", "→", ""}
    assert {(line.split() or [""])[0] for line in lines[:-3]} <= beginnings and "everything" in done.stdout, done.stdout
    assert not [line for line in lines if line.startswith("ok       everything")], done.stdout
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout), done.stdout
    shown = [line for line in lines if re.match("(ok|note|problem) ", line)]
    assert len(shown) == len(findings), "none is hidden"


def test_intake_exchanges_that_nothing_uses(ward):
    """The proxy does not delete them: a client may declare a queue with one at any moment."""
    asked, about = ("--management-url", management(ward)), f"intake exchanges, vhost {ward.vhost}"
    with pika.BlockingConnection(pika.ConnectionParameters(*ward.broker.address, ward.vhost, ward.broker.parameters.credentials)) as connection:
        channel = connection.channel()
        for name in "gone", "queue", "policy", "%2F%27":
            channel.exchange_declare(f"{PREFIX}/{name}", "fanout", internal=True)
        channel.exchange_declare(f"{PREFIX}.delay")
        channel.queue_declare("used", durable=True, arguments={"x-dead-letter-exchange": f"{PREFIX}/queue"})
        ward.broker.set_policy(ward.vhost, "dead", "^none$", {"dead-letter-exchange": f"{PREFIX}/policy"})
        says, advice = one(ward.examine(*asked), "note", about)
        assert says == f"2 that no queue and no policy names: {PREFIX}/%2F%27, {PREFIX}/gone." and "delete them" in advice
        for name in "gone", "%2F%27":
            channel.exchange_delete(f"{PREFIX}/{name}")
    assert one(ward.examine(*asked), "ok", about)[0] == "A queue or a policy names each of them."


def test_who_could_forge_the_record(ward):
    """Its entries are known by their user-id, which the protocol of streams does not check."""
    asked = {"management_url": management(ward), "declares": "lenient"}
    assert one(ward.examine(**asked), "ok", f"record {PREFIX}.redeclared")[0] == "No node takes clients that speak the protocol of streams."
    assert "record" not in str(ward.examine(**asked | {"declares": "strict"}))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    streams = ("--plugins", "rabbitmq_management,rabbitmq_stream", "--conf", f"stream.listeners.tcp.1 = 127.0.0.1:{port}")
    with node_like(ward.broker, "streams", *streams) as node:
        with_streams = Ward(node)
        asked["management_url"] = f"http://guest:guest@127.0.0.1:{settings_of(node.folder)['MANAGEMENT_PORT']}"
        says, advice = one(with_streams.examine(**asked), "note", f"record {PREFIX}.redeclared, vhost {ward.vhost}")
        assert says.endswith("these users can forge it: guest.") and "rabbitmqctl set_permissions" in advice
        node.permit(ward.vhost, "guest", ".*", r"^(?!doctor\.redeclared$)", ".*")
        node.permit(ward.vhost, CLIENT, "^orders", "redeclared", "^orders")
        says, _ = one(with_streams.examine(**asked), "note", f"record {PREFIX}.redeclared, vhost {ward.vhost}")
        assert "guest" in says and CLIENT in says, "a pattern that cannot be read here may fit"
        node.permit(ward.vhost, "guest", ".*", "^orders", ".*")
        node.permit(ward.vhost, CLIENT, "^orders", rf"^(orders.*|{PREFIX}([+/].*)?)$", "^orders")
        assert "Only the proxy's user" in one(with_streams.examine(**asked), "ok", f"record {PREFIX}.redeclared, vhost {ward.vhost}")[0]


def test_a_queue_of_the_proxy_s_own_is_dead(ward):
    """A declare says that it is empty."""
    with pika.BlockingConnection(pika.ConnectionParameters(*ward.broker.address, ward.vhost, ward.broker.parameters.credentials)) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{PREFIX}.intake", durable=True, arguments={"x-queue-type": "quorum", "x-single-active-consumer": True})
        channel.queue_declare(f"{PREFIX}.parked", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_consume(f"{PREFIX}.intake", lambda *_: None)
        assert not of(ward.examine(), "problem")
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{ward.vhost}">>, queue, <<"{PREFIX}.parked">>}}), P = amqqueue:get_pid(Q)'
        for fault, says in (("sys:suspend(element(1, P))", "It does not answer"), ("sys:resume(element(1, P)), ra:stop_server(quorum_queues, P)", "It is dead")):
            ward.broker.eval(f"{found}, {fault}.")
            words, advice = one(ward.examine(), "problem", f"queue {PREFIX}.parked")
            assert words.startswith(says) and "restart the node" in advice
        ward.broker.eval(f"{found}, ra:restart_server(quorum_queues, P).")


def test_what_is_parked(ward):
    with pika.BlockingConnection(pika.ConnectionParameters(*ward.broker.address, ward.vhost, ward.broker.parameters.credentials)) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{PREFIX}.parked", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", f"{PREFIX}.parked", b"m")
    says, _ = one(ward.examine(), "note", f"queue {PREFIX}.parked")
    assert says == "1 dead letter is parked: no queue took it."


def test_the_proxy_that_runs_is_asked(ward, via):
    found = ward.examine(admin="%s:%d" % via.proxy.admin)
    assert "It runs, and is ready." in [says for _, says, _ in of(found, "ok")], found


def test_people_read_a_table(ward):
    words = [BINARY, "doctor", "--upstream", "amqp://%s:secret@%s:%d" % (USER, *ward.broker.address), "--vhost", ward.vhost]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLX_PROXY_")}
    done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
    # The names of the default prefix are not permitted.
    assert done.returncode == 64, done
    assert re.search(r"^problem  user doctor, vhost doctor +The proxy's user may not configure its own queues", done.stdout, re.M), done.stdout
    assert f"→ rabbitmqctl set_permissions -p doctor {USER} '^dlx-proxy' '.*' '^dlx-proxy'" in done.stdout
