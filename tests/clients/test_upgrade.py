"""A broker that is upgraded to 4.3 behind the proxy: what it was told, what waits and what is parked is right afterwards.

RabbitMQ asks for 4.2 before 4.3, as that has all feature flags which 4.3 requires. A node of 4.0 with Khepri has them, too, and 4.3 takes its data."""

import dataclasses
import time

import pytest

from lab import Alone, middle_root, node, rabbit, settings_of, until
from own import PARKED, PREFIX, Own
from retrying import retries
from test_waiting import DELAY, MINUTES, retries as command

pytestmark = [pytest.mark.once, pytest.mark.proxied]

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
        own = Own(Alone(broker), "quorum", tmp_path / "log")

        def upgrade():
            rabbit("stop", broker.folder, "--keep")
            rabbit("start", broker.folder, "--root", newest)
            own.via.broker = dataclasses.replace(broker, version=settings_of(broker.folder)["VERSION"])
            until(own.is_consuming, own.proxy.text)
            own.connection = own.connect()
            own.channel = own.connection.channel()

        yield own, upgrade
        own.stop()


def test_what_the_broker_was_told_before_is_right_after_it(upgraded):
    own, upgrade = upgraded
    own.restart(declares="lenient")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": own.queue("dead")}
    retried = {"x-delayed-retry-type": "all", "x-delivery-limit": 3} | dead
    declared = {
        "classic": {"x-delayed-retry-min": MINUTES} | retried,
        "quorum": {"x-queue-type": "quorum", "x-delayed-retry-min": MINUTES} | retried,
        "soon": {"x-queue-type": "quorum", "x-delayed-retry-min": SOON} | retried,
        "moved": {"x-message-ttl": SOON, "x-dead-letter-exchange": "away"},
        "lost": {"x-dead-letter-exchange": "nowhere"},
    }

    def declare(channel, names=declared):
        for name in names:
            channel.queue_declare(f"{PREFIX}-{name}", durable=True, arguments=declared[name])

    def arrives(body):
        method, _, got = own.get(f"{PREFIX}-dead")
        assert got == body
        own.channel.basic_ack(method.delivery_tag)

    def give_back(name):
        method, properties, body = own.get(f"{PREFIX}-{name}")
        own.channel.basic_nack(method.delivery_tag, requeue=True)
        return body, properties

    declare(own.channel)
    # The last declare counts.
    declared["moved"] = {"x-message-ttl": SOON} | dead
    declare(own.channel)
    for name in ("classic", "quorum"):
        own.publish(f"{PREFIX}-{name}", name.encode())
        give_back(name)
    own.publish(f"{PREFIX}-lost", b"parked")
    own.channel.basic_reject(own.get(f"{PREFIX}-lost")[0].delivery_tag, requeue=False)
    until(lambda: (own.depth(DELAY), own.depth(PARKED)) == (2, 1), "two wait, and one is parked")

    upgrade()

    for _ in range(2):
        # The broker finds nothing changed, and what counts of `moved` is the later declare: the dead letters of the broker's own go there.
        declare(own.channel)
        own.publish(f"{PREFIX}-moved", b"expires")
        arrives(b"expires")
        # Now it is the broker who delays what comes back to a quorum queue, and its count is shown.
        own.publish(f"{PREFIX}-soon", b"native")
        given = time.monotonic()
        give_back("soon")
        method, properties, again = own.get(f"{PREFIX}-soon")
        assert (again, properties.headers) == (b"native", {"x-acquired-count": 1})
        assert time.monotonic() - given > SOON / 1000 and retries(own.proxy, f"{PREFIX}-soon", "confirmed") == 0
        own.channel.basic_ack(method.delivery_tag)
        assert (own.depth(DELAY), own.depth(PARKED)) == (2, 1)
        own.restart(declares="lenient")

    # What waits comes back all the same, with its count. The broker's next delay of it is a count of its own.
    declare(own.channel)
    command(own, "release")
    for name in ("classic", "quorum"):
        body, properties = give_back(name)
        assert (body, properties.headers) == (name.encode(), {"x-acquired-count": 1})
    until(lambda: (own.depth(DELAY), own.via.broker.messages("/", f"{PREFIX}-quorum")) == (1, 1), "each waits where it is delayed now")
    assert own.depth(f"{PREFIX}-quorum") == 0
