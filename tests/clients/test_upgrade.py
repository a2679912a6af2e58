"""A broker that is upgraded to 4.3 behind the proxy: what it was told, what waits and what is parked is right afterwards.

RabbitMQ asks for 4.2 before 4.3, as that has all feature flags which 4.3 requires. A node of 4.0 with Khepri has them, too, and 4.3 takes its data."""

import dataclasses
import time

import pytest

from lab import Via, middle_root, node, rabbit, settings_of, until
from scene import PARKED, TARGETS, Own
from test_waiting import DELAY, MINUTES, retries

SOON = 1000
"""A delay that the test waits for, in milliseconds."""


@pytest.fixture
def upgraded(via, tmp_path):
    """A proxy before a node of 4.0, and what upgrades that."""
    if not via.broker.is_from(4, 3) or not via.broker.folder:
        pytest.skip("upgrades to 4.3, and has to know where that is")
    newest = settings_of(via.broker.folder).get("ROOT")
    with node("upgraded", middle_root()) as broker:
        assert broker.version.startswith("4.0")
        # Whoever upgrades does both before: otherwise 4.3 does not start.
        broker.ctl("enable_feature_flag", "--opt-in", "khepri_db")
        broker.ctl("enable_feature_flag", "all")
        own = Own(Via(broker, vhost="/"), tmp_path / "log", lenient=TARGETS)

        def upgrade():
            own.via.close()
            rabbit("stop", broker.folder, "--keep")
            rabbit("start", broker.folder, "--root", newest)
            own.via.broker = dataclasses.replace(broker, version=settings_of(broker.folder)["VERSION"])
            until(lambda: own.metric("dlx_proxy_intake_consuming") == 1, own.proxy.text)

        yield own, upgrade
        own.stop()


def test_what_the_broker_was_told_before_is_right_after_it(upgraded):
    own, upgrade = upgraded
    target = {"dlx": "", "dlk": own.queue("dead")}
    retried = {"retry_type": "all", "limit": 3} | target
    declared = {
        "classic": {"retry_min": MINUTES} | retried,
        "quorum": {"kind": "quorum", "retry_min": MINUTES} | retried,
        "soon": {"kind": "quorum", "retry_min": SOON} | retried,
        "moved": {"ttl": SOON, "dlx": "away"},
        "lost": {"dlx": "nowhere"},
    }

    def declare():
        for label, short in declared.items():
            own.queue(label, **short)

    declare()
    # The last declare counts.
    declared["moved"] = {"ttl": SOON} | target
    declare()
    for label in ("classic", "quorum"):
        own.publish("", f"own-{label}", label.encode())
        own.give_back(f"own-{label}")
    own.die("own-lost", b"parked")
    until(lambda: own.depth(PARKED) == 1 and DELAY in own.via.broker.queues("/") and own.depth(DELAY) == 2, "two wait, and one is parked")

    upgrade()

    for _ in range(2):
        # The broker finds nothing changed, and what counts of `moved` is the later declare: the dead letters of the broker's own go there.
        declare()
        own.publish("", "own-moved", b"expires")
        message = own.get("own-dead")
        assert message.body == b"expires"
        own.channel.basic_ack(message.method.delivery_tag)
        # Now it is the broker who delays what comes back to a quorum queue, and its count is shown.
        own.publish("", "own-soon", b"native")
        given = time.monotonic()
        own.give_back("own-soon")
        method, properties, again = own.get("own-soon")
        assert (again, properties.headers) == (b"native", {"x-acquired-count": 1})
        assert time.monotonic() - given > SOON / 1000 and own.metric("dlx_proxy_retries_total", queue="own-soon", outcome="confirmed") == 0
        own.channel.basic_ack(method.delivery_tag)
        assert (own.depth(DELAY), own.depth(PARKED)) == (2, 1)
        own.restart(lenient=TARGETS)

    # What waits comes back all the same, with its count. The broker's next delay of it is a count of its own.
    declare()
    retries(own, "release")
    for label in ("classic", "quorum"):
        message = own.give_back(f"own-{label}")
        assert (message.body, message.properties.headers) == (label.encode(), {"x-acquired-count": 1})
    until(lambda: (own.depth(DELAY), own.via.broker.messages("/", "own-quorum")) == (1, 1), "each waits where it is delayed now")
    assert own.depth("own-quorum") == 0
