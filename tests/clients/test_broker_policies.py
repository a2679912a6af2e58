"""Policies of the broker, as a proxy with a management-url applies them: the table of crates/core/src/registry/testdata, judged by real nodes; and targets that only
a policy names."""

import base64
import json
import re
import shlex
import time

import pika
import pytest

from lab import REPOSITORY, until
from own import PARKED, own  # noqa: F401
from retrying import Consumer
from test_known import management

pytestmark = [pytest.mark.once, pytest.mark.proxied]

VHOST = "clients-effective"
TABLE = REPOSITORY / "crates/core/src/registry/testdata/effective_policy.txt"
KEYS = {"exchange": "dead-letter-exchange", "key": "dead-letter-routing-key", "ttl": "message-ttl", "limit": "delivery-limit", "overflow": "overflow"}
"""Words of the table, and keys of policies."""
OTHERS = {"queue-mode": "lazy"}
"""Keys of which the table says no value."""
OF_NEWER = {"classic_queues", "quorum_queues", "streams"}
"""Words of `apply-to` that 3.10 does not know."""


def words(line):
    """`verb name=value flag`"""
    verb, *rest = shlex.split(line)
    return verb, dict(word.split("=", 1) if "=" in word else (word, True) for word in rest)


def blocks():
    """The policies of each block, and its questions with their answers."""
    for block in TABLE.read_text().strip().split("\n\n"):
        if "\n----\n" in block:
            asked, answers = block.split("\n----\n")
            lines = [words(line) for line in asked.splitlines() if not line.startswith("#")]
            policies = [said for verb, said in lines if verb == "broker-policy"]
            questions = [said for verb, said in lines if verb == "effective"]
            yield policies, list(zip(questions, answers.splitlines(), strict=True))


def definition(said):
    numbers = {"ttl", "limit"}
    known = {key: int(said[word]) if word in numbers else said[word] for word, key in KEYS.items() if word in said}
    return known | {key: OTHERS[key] for key in said.get("keys", "").split(",") if key}


def effective(broker, queue):
    """What the node itself says, in the words of the table."""
    name = base64.b64encode(queue.encode()).decode()
    found = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{VHOST}">>, queue, base64:decode(<<"{name}">>)}})'
    said = f"case rabbit_policy:effective_definition(Q) of undefined -> #{{}}; L when is_list(L) -> maps:from_list(L); M -> M end"
    answer = broker.eval(f"{found}, base64:encode(iolist_to_binary(rabbit_json:encode({said}))).")
    known = json.loads(base64.b64decode(re.fullmatch(r'<<"?(.*?)"?>>', answer, re.S)[1]))
    return " ".join(f"{word}={known[key]}" for word, key in KEYS.items() if key in known) or "nothing"


def test_effective_policies(via):
    broker = via.broker
    broker.make([VHOST], [], [(broker.user, VHOST, ".*", ".*", ".*")])
    try:
        parameters = pika.ConnectionParameters(*broker.address, VHOST, broker.parameters.credentials)
        channel, judged = pika.BlockingConnection(parameters).channel(), 0
        for policies, questions in blocks():
            if not broker.is_from(3, 12) and any(said.get("apply-to") in OF_NEWER or {"operator", "overflow"} <= set(said) for said in policies):
                continue
            for number, said in enumerate(policies):
                set_by = "parse_set_op" if "operator" in said else "parse_set"
                pattern, rest = said.get("pattern", ".*"), (said.get("priority", "0"), said.get("apply-to", "queues"))
                broker._call(f"rabbit_policy:{set_by}", VHOST, f"p{number}", pattern, json.dumps(definition(said)), *rest)
            for said, answer in questions:
                queue, kind = said["queue"], said["type"]
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
                if answer != "unknown":
                    assert effective(broker, queue) == answer, (said, policies)
                    judged += 1
                channel.queue_delete(queue)
            for number, said in enumerate(policies):
                broker._call(f"rabbit_policy:delete{'_op' if 'operator' in said else ''}", VHOST, f"p{number}")
        assert judged >= 12
    finally:
        broker.unmake([VHOST], [])


RETRIES = """
[[policy]]
name = "retries"
vhost = "%s"
pattern = "^own-source"
[policy.definition]
delayed-retry-min = %d
delivery-limit = %d
"""


class Scene:
    """A queue with retries whose dead-letter target only a policy of the broker names."""

    def __init__(self, own, folder, source="source"):
        self.own, self.broker, self.vhost, self.file = own, own.via.broker, own.via.vhost, folder / "retries.toml"
        self.dead, self.other, self.source = own.queue("dead"), own.queue("other"), f"own-{source}"

    def begin(self, with_management, delay=200, limit=0, **settings):
        self.file.write_text(RETRIES % (self.vhost, delay, limit))
        if with_management:
            settings["management_url"] = management(self.own.via)
        self.own.restart(config=self.file, **settings)

    def leads_to(self, queue):
        definition = {"dead-letter-exchange": "", "dead-letter-routing-key": queue}
        self.broker.set_policy(self.vhost, "target", "^own-source", definition)

    def returns(self, body, **properties):
        """A client returns a message."""
        self.own.queue(self.source.removeprefix("own-"))
        self.own.publish(self.source, body, **properties)
        self.own.channel.basic_reject(self.own.get(self.source)[0].delivery_tag, requeue=True)

    def arrives(self, queue, count=1):
        until(lambda: self.own.depth(queue) == count, lambda: f"{self.own.depth(queue)} of {count} in {queue}: {self.own.proxy.text()}")


@pytest.fixture
def scene(own, tmp_path):  # noqa: F811
    scene = Scene(own, tmp_path)
    yield scene
    scene.broker.eval(f'catch rabbit_policy:delete(<<"{scene.vhost}">>, <<"target">>, <<"tests">>), ok.')


@pytest.mark.parametrize("with_management", [False, True], ids=["alone", "management"])
def test_what_expires_while_it_is_away_goes_where_a_policy_of_the_broker_leads(scene, with_management):
    scene.leads_to(scene.dead)
    scene.begin(with_management, delay=1000, limit=9)
    for number in range(5):
        scene.returns(b"%d" % number, expiration="500")
    scene.arrives(scene.dead, 5)
    assert scene.own.depth(PARKED) == 0


def test_at_the_limit_it_goes_there_with_a_management_url_and_waits_for_one_without(scene):
    scene.leads_to(scene.dead)
    scene.begin(False)
    scene.returns(b"parked")
    scene.arrives(PARKED)
    with scene.own.via.direct.channel() as channel:
        parked = channel.basic_get(PARKED)[1]
        assert parked.headers["x-parked-cause"] == "target_unknown"
    scene.begin(True, parked_retry="1s")
    scene.arrives(scene.dead)
    assert scene.own.depth(PARKED) == 0
    scene.returns(b"goes")
    scene.arrives(scene.dead, 2)


def test_a_full_queue_whose_policy_dead_letters_what_it_refuses(scene):
    """Each attempt to put a message back would make another dead letter."""
    leads = {"dead-letter-exchange": "", "dead-letter-routing-key": scene.dead}
    scene.broker.set_policy(scene.vhost, "target", "^own-source", leads | {"max-length": 1, "overflow": "reject-publish-dlx"})
    scene.begin(True, limit=9)
    scene.returns(b"comes back")
    scene.own.publish(scene.source, b"takes its place")
    scene.arrives(PARKED)
    time.sleep(3)
    assert scene.own.depth(scene.dead) == 1, scene.own.proxy.text()


def test_a_changed_policy_counts_without_a_restart(scene):
    scene.begin(True, parked_retry="1s")
    scene.returns(b"nowhere")
    scene.arrives(PARKED)
    scene.leads_to(scene.dead)
    scene.arrives(scene.dead)
    assert scene.own.depth(PARKED) == 0
    scene.returns(b"there")
    scene.arrives(scene.dead, 2)
    scene.leads_to(scene.other)
    polled = lambda: (scene.returns(b"elsewhere"), scene.own.depth(scene.other) > 0)[1]
    until(polled, "a reject goes by the new policy", pause=0.5)


def test_a_queue_with_an_odd_name_is_known_from_the_list(own, tmp_path):  # noqa: F811
    """This proxy has never seen its declare."""
    scene = Scene(own, tmp_path, source='source/a b%2F.100% ü"?#')
    try:
        scene.begin(False)
        scene.returns(b"parked")
        scene.arrives(PARKED)
        scene.leads_to(scene.dead)
        scene.begin(True, parked_retry="1s")
        scene.arrives(scene.dead)
    finally:
        scene.broker.clear_policy(scene.vhost, "target")


def test_an_api_that_refuses_is_no_answer(scene):
    """What only the broker knows stays unknown, and nothing is lost."""
    scene.leads_to(scene.dead)
    scene.begin(False, management_url=re.sub("//.*@", "//guest:wrong@", management(scene.own.via)))
    assert "the management API cannot be read" in scene.own.proxy.text()
    scene.returns(b"parked")
    scene.arrives(PARKED)
    scene.begin(True, parked_retry="1s")
    scene.arrives(scene.dead)


def rejects(own, queue):  # noqa: F811
    """A worker that declares nothing consumes a message, and rejects it."""
    with own.via.direct.channel() as channel:
        channel.basic_publish("", queue, b"m", pika.BasicProperties(delivery_mode=2))
    connection = own.connect()
    consumer = Consumer(connection, queue)
    consumer.channel.basic_reject(consumer.one().tag, requeue=False)
    connection.close()


def confirmed(own):  # noqa: F811
    return own.metric("dlx_proxy_messages_dead_lettered_total")


def made(own, label, **arguments):  # noqa: F811
    """A queue that no proxy has seen declared."""
    name = f"own-{label}"
    own.queues.append(name)
    with own.via.direct.channel() as channel:
        channel.queue_declare(name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    return name


@pytest.mark.parametrize("by", ["argument", "policy"])
def test_rejects_of_a_worker_that_declares_nothing_are_the_proxys(scene, by):
    own, dead = scene.own, {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": scene.dead}
    if by == "policy":
        scene.leads_to(scene.dead)
    before = made(own, "source before", **dead if by == "argument" else {})
    own.restart(management_url=management(own.via))
    later = made(own, "source later 100%/ü", **dead if by == "argument" else {})
    for count, queue in enumerate([before, later, later], 1):
        rejects(own, queue)
        scene.arrives(scene.dead, count)
    assert confirmed(own) == 3, own.proxy.text()


def test_a_queue_that_is_made_anew_between_two_lists(scene):
    """What the list told of it counts no more."""
    own = scene.own
    leads = lambda queue: {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": queue}
    source = made(own, "source anew", **leads(scene.dead))
    own.restart(management_url=management(own.via))
    rejects(own, source)
    scene.arrives(scene.dead)
    with own.via.direct.channel() as channel:
        channel.queue_delete(source)
    made(own, "source anew", **leads(scene.other))
    rejects(own, source)
    scene.arrives(scene.other)
    assert own.depth(scene.dead) == 1
