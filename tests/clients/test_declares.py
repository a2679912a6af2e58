"""7: what the broker says to a declare is what a client of the proxy hears: each case runs directly too, and is compared."""

import pytest

from sides import both, sides  # noqa: F401

D, K = "the-dlx", "the-key"
"""A dead-letter exchange and key; the exchange does not exist (2.3)."""


EXISTING = {  # case: (what is there, what is declared, what the answer says)
    "the same": (dict(dlx=D, dlk=K), dict(dlx=D, dlk=K), "ok"),
    "other DLX": (dict(dlx=D, dlk=K), dict(dlx="other", dlk=K), f"received 'other' but current is '{D}'"),
    "other key": (dict(dlx=D, dlk=K), dict(dlx=D, dlk="other"), f"received 'other' but current is '{K}'"),
    "other DLX and key": (dict(dlx=D, dlk=K), dict(dlx="other", dlk="other"), "received 'other' but current is"),
    "no key": (dict(dlx=D, dlk=K), dict(dlx=D), f"received none but current is the value '{K}' of type 'longstr'"),
    "a key where none was": (dict(dlx=D), dict(dlx=D, dlk=K), f"received the value '{K}' of type 'longstr' but current is none"),
    "an empty key where none was": (dict(dlx=D), dict(dlx=D, dlk=""), "received the value '' of type 'longstr' but current is none"),
    "no key where it was empty": (dict(dlx=D, dlk=""), dict(dlx=D), "but current is the value '' of type 'longstr'"),
    "no DLX": (dict(dlx=D), dict(), f"received none but current is the value '{D}' of type 'longstr'"),
    "neither": (dict(dlx=D, dlk=K), dict(), "received none but current is the value"),
    "a DLX where none was": (dict(), dict(dlx=D), f"received the value '{D}' of type 'longstr' but current is none"),
    "both where none were": (dict(), dict(dlx=D, dlk=K), "but current is none"),
    "default exchange instead": (dict(dlx=D, dlk=K), dict(dlx="", dlk=K), f"received '' but current is '{D}'"),
    "from the default exchange": (dict(dlx="", dlk=K), dict(dlx=D, dlk=K), f"received '{D}' but current is ''"),
    "a key without DLX": (dict(dlx=D, dlk=K), dict(dlk=K), "406"),
    "DLX is a number": (dict(dlx=D), dict(dlx=7), "406"),
    "key is a number": (dict(dlx=D, dlk=K), dict(dlx=D, dlk=7), "406"),
    "other max-length": (dict(dlx=D, max_length=5), dict(dlx=D, max_length=6), "inequivalent arg 'x-max-length'"),
    "other TTL": (dict(dlx=D, ttl=60000), dict(dlx=D, ttl=60001), "inequivalent arg 'x-message-ttl'"),
    "other DLX and max-length": (dict(dlx=D, max_length=5), dict(dlx="other", max_length=6), "inequivalent arg"),
    "not durable": (dict(dlx=D), dict(dlx=D, durable=False), "inequivalent arg 'durable'"),
    "auto-delete": (dict(dlx=D), dict(dlx=D, auto_delete=True), "inequivalent arg 'auto_delete'"),
    "exclusive": (dict(dlx=D), dict(dlx=D, exclusive=True), "RESOURCE_LOCKED"),
    "other type": (dict(dlx=D, kind="classic"), dict(dlx=D, kind="quorum"), "inequivalent arg 'x-queue-type'"),
    "long names": (dict(dlx="d" * 120), dict(dlx="e" * 120), "received 'eee"),
    "quorum: the same": (dict(kind="quorum", dlx=D), dict(kind="quorum", dlx=D), "ok"),
    "quorum: other DLX": (dict(kind="quorum", dlx=D), dict(kind="quorum", dlx="other"), f"received 'other' but current is '{D}'"),
    "quorum: other strategy": (dict(kind="quorum", dlx=D), dict(kind="quorum", dlx=D, strategy="at-least-once"), "inequivalent arg 'x-dead-letter-strategy'"),
    "passive": (dict(dlx=D), dict(passive=True), "ok"),
    "passive with other arguments": (dict(dlx=D), dict(passive=True, dlx="other"), "ok"),
}


@pytest.mark.parametrize("case", EXISTING)
@pytest.mark.parametrize("connection", [1, 2], ids=["same connection", "another connection"])
def test_declare_what_exists(scene, both, case, connection):
    existing, declared, says = EXISTING[case]
    queue = scene.name("queue")
    scene.queues.append(queue)
    assert both.declare(queue, **existing)[0] == "ok"
    assert says in str(both.declare(queue, connection=connection, **declared)).replace('\\"', "'")
    assert both.declare(queue, **existing)[0] == "ok", "it still stands"


NEW = {
    "key without DLX": (dict(dlk=K), "routing_key_but_no_dlx_defined"),
    "DLX is a number": (dict(dlx=7), "406"),
    "DLX is a truth": (dict(dlx=True), "406"),
    "DLX is a list": (dict(dlx=["d"]), "406"),
    "DLX is nothing": (dict(args={"x-dead-letter-exchange": None}), "406"),
    "key is a number": (dict(dlx=D, dlk=7), "406"),
    "strategy on a classic queue": (dict(dlx=D, strategy="at-least-once"), "406"),
    "unknown strategy": (dict(kind="quorum", dlx=D, strategy="never"), "406"),
    "at-least-once without DLX": (dict(kind="quorum", strategy="at-least-once"), "ok"),
    "a stream": (dict(kind="stream", dlx=D), "406"),
    "unknown type": (dict(kind="heap", dlx=D), "406"),
    "negative TTL": (dict(dlx=D, ttl=-1), "406"),
    "TTL in words": (dict(dlx=D, ttl="long"), "406"),
    "expires at once": (dict(dlx=D, expires=0), "406"),
    "negative expires": (dict(dlx=D, expires=-1), "406"),
    "negative length": (dict(dlx=D, max_length=-1), "406"),
    "unknown overflow": (dict(dlx=D, overflow="upwards"), "406"),
    "exclusive quorum": (dict(kind="quorum", dlx=D, exclusive=True), "406"),
    "transient quorum": (dict(kind="quorum", dlx=D, durable=False), "406"),
    "long names": (dict(dlx="d" * 250, dlk="k" * 250), "ok"),
    "longer than a name may be": (dict(dlx="d" * 300), "ok"),
    "an unknown argument": (dict(args={"x-dead-letter-exchange": D, "x-unheard-of": 1}), "ok"),
    "passive and not there": (dict(passive=True, dlx=D), "NOT_FOUND"),
    "transient": (dict(dlx=D, durable=False), "ok"),
    "auto-delete": (dict(dlx=D, auto_delete=True), "ok"),
}


@pytest.mark.parametrize("case", NEW)
def test_declare_what_is_new(scene, both, case):
    declared, says = NEW[case]
    queue = scene.name("queue")
    scene.queues.append(queue)
    answer = both.declare(queue, **declared)
    assert says in str(answer)
    if answer[0] != "ok":
        assert both.declare(queue, passive=True)[1] == 404, "a refused declare makes nothing"


def test_reserved_name(both):
    assert both.declare("amq.mine", dlx=D)[1] == 403


def test_exclusive_queue_of_another_connection(scene, both):
    queue = scene.name("queue")
    assert both.declare(queue, exclusive=True, dlx=D)[0] == "ok"
    for declared in (dict(exclusive=True, dlx=D), dict(dlx=D), dict(dlx="other"), dict(), dict(passive=True)):
        assert both.declare(queue, connection=2, **declared)[1] == 405
    assert both.declare(queue, exclusive=True, dlx=D)[0] == "ok"
    assert "inequivalent" in both.declare(queue, exclusive=True, dlx="other")[2]
    both.hang_up()


RIGHTS = {  # 7.6: user, what is declared, what the answer says if the queue is new, and if it is there
    "all": ("all-rights", dict(dlx=D), "ok", "ok"),
    "no right on the DLX": ("no-secret-exchange", dict(dlx="a-secret", dlk=K), "'a-secret' in vhost 'VHOST' refused for user 'no-secret-exchange'", "ok"),
    "a right on this DLX": ("no-secret-exchange", dict(dlx=D), "ok", "ok"),
    "no right on the DLX, wrong arguments": ("no-secret-exchange", dict(dlx="a-secret", ttl=-1), "'a-secret' in vhost 'VHOST' refused", "406"),
    "no right on intake exchanges": ("no-intake", dict(dlx=D), "ok", "ok"),
    "no right on the queue": ("no-configure", dict(dlx=D), "refused for user 'no-configure'", "refused for user 'no-configure'"),
    "no right on the queue, no DLX": ("no-configure", dict(), "refused for user 'no-configure'", "refused for user 'no-configure'"),
    "no right to read": ("no-read", dict(dlx=D), "refused for user 'no-read'", "ok"),
    "no right on anything": ("no-rights", dict(dlx=D), "refused for user 'no-rights'", "refused for user 'no-rights'"),
    "no right on anything, passive": ("no-rights", dict(passive=True), "(", "("),
    "no right in the vhost": ("stranger", dict(dlx=D), "open", "open"),
}


@pytest.mark.parametrize("case", RIGHTS)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "there"])
def test_declare_without_a_right(scene, both, case, exists):
    user, declared, says_new, says_there = RIGHTS[case]
    queue = scene.name("queue")
    scene.queues.append(queue)
    if exists:
        there = {name: value for name, value in declared.items() if name not in ("passive", "ttl")}
        assert both.declare(queue, **there)[0] == "ok"
    answer = both.declare(queue, user=user, **declared)
    assert (says_there if exists else says_new) in str(answer).replace('\\"', "'")


@pytest.mark.takeover
def test_a_right_that_is_given_later(scene, both, via):
    """What was refused once is permitted as soon as the broker permits it; and again refused when it does not."""
    configure, write, read = ".*", "^(?!.*secret)", ".*"
    answers = []
    for number, rights in enumerate([write, ".*"]):
        for vhost in (via.vhost, via.judge):
            via.broker.ctl("-q", "set_permissions", "-p", vhost, "no-secret-exchange", configure, rights, read)
        scene.queues.append(scene.name(f"queue{number}"))
        answers.append(both.declare(scene.queues[-1], user="no-secret-exchange", connection=number, dlx="a-secret")[0])
    for vhost in (via.vhost, via.judge):
        via.broker.ctl("-q", "set_permissions", "-p", vhost, "no-secret-exchange", configure, write, read)
    assert answers == ["channel", "ok"]
