"""Policies of the broker, as a proxy with a management-url applies them: the table of crates/core/src/registry/testdata, judged by real nodes; and targets that only
a policy names."""

import base64
import contextlib
import json
import re
import shlex
import time

import pika
import pytest

from console import management
from lab import REPOSITORY, until
from scene import PARKED, broker_policy, policies

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


SOURCE = 'own-source/a b%2F.100% ü"?#'
"""A queue with an odd name, which is known from the list, as declares of it never came through this proxy."""


@pytest.fixture
def retried(own, tmp_path):
    """Retries without a target for it; a restart has the management API, or not."""
    own.dead, own.other = own.queue("dead"), own.queue("other")
    own.made(SOURCE.removeprefix("own-"))

    def begin(managed=True, delay=200, limit=0, **settings):
        definition = {"delayed-retry-min": delay, "delivery-limit": limit}
        file = policies(tmp_path / "retries.toml", own.via.vhost, retries=("^own-source", definition))
        url = management(own.via) if managed is True else managed or ""
        own.restart(config=file, management_url=url, **settings)

    own.begin = begin
    own.leads_to = lambda queue: broker_policy(own, "target", "^own-source", {"dead-letter-exchange": "", "dead-letter-routing-key": queue})
    return own


def returned(own, body, **properties):
    own.publish("", SOURCE, body, **properties)
    own.give_back(SOURCE)


@pytest.mark.parametrize("managed", [False, True], ids=["alone", "management"])
def test_what_expires_while_it_is_away_goes_where_a_policy_of_the_broker_leads(retried, managed):
    with retried.leads_to(retried.dead):
        retried.begin(managed, delay=1000, limit=9)
        for number in range(5):
            returned(retried, b"%d" % number, expiration="500")
        retried.has(retried.dead, 5)
    assert retried.depth(PARKED) == 0


def test_at_the_limit_it_goes_there_with_a_management_url_and_waits_for_one_without(retried):
    """An API that refuses is no answer. A changed policy counts without a restart."""
    own = retried
    with own.leads_to(own.dead):
        for number, url in enumerate(("", re.sub("//.*@", "//guest:wrong@", management(own.via)))):
            own.begin(url)
            assert ("the management API cannot be read" in own.proxy.text()) == (url != "")
            returned(own, b"parked")
            own.has(PARKED, number + 1)
        with own.via.direct.channel() as channel:
            assert channel.basic_get(PARKED)[1].headers["x-parked-cause"] == "target_unknown"
        own.begin(parked_retry="1s")
        own.has(own.dead, 2)
        assert own.depth(PARKED) == 0
    with own.leads_to(own.other):
        until(lambda: (returned(own, b"elsewhere"), own.depth(own.other) > 0)[1], "a return goes by the new policy", pause=0.5)


def test_a_full_queue_whose_policy_dead_letters_what_it_refuses(retried):
    """Each attempt to put a message back would make another dead letter."""
    own = retried
    leads = {"dead-letter-exchange": "", "dead-letter-routing-key": own.dead}
    with broker_policy(own, "target", "^own-source", leads | {"max-length": 1, "overflow": "reject-publish-dlx"}):
        own.begin(limit=9)
        returned(own, b"comes back")
        own.publish("", SOURCE, b"takes its place")
        own.has(PARKED, 1)
        time.sleep(3)
        assert own.depth(own.dead) == 1, own.proxy.text()


@pytest.mark.parametrize("by", ["argument", "policy"])
def test_rejects_of_a_worker_that_declares_nothing_are_the_proxys(retried, by):
    """Of queues that are there before it, later, and made anew between two lists: what the list told of that one counts no more."""
    own = retried
    leads = lambda queue: {"dlx": "", "dlk": queue} if by == "argument" else {}

    def rejects(queue):
        with own.via.connect() as connection:
            channel = connection.channel()
            own.publish("", queue)
            channel.basic_reject(next(channel.consume(queue))[0].delivery_tag, requeue=False)

    with own.leads_to(own.dead) if by == "policy" else contextlib.nullcontext():
        before = own.made("source before", **leads(own.dead))
        own.restart(management_url=management(own.via))
        later = own.made("source later 100%/ü", **leads(own.dead))
        for count, queue in enumerate([before, later, later], 1):
            rejects(queue)
            own.has(own.dead, count)
        assert own.metric("dlx_proxy_messages_dead_lettered_total") == 3, own.proxy.text()
        if by == "argument":
            own.delete(before)
            own.made("source before", **leads(own.other))
            rejects(before)
            own.has(own.other, 1)
            assert own.depth(own.dead) == 3
