"""Queues whose name the broker generates, and policies of the proxy whose pattern needs the rest of such a name."""

import pytest

from lab import until
from own import PREFIX, own  # noqa: F401, a fixture

pytestmark = [pytest.mark.once, pytest.mark.proxied]

POLICY = r"""
[[policy]]
name = "generated"
vhost = "%s"
pattern = '^amq\.gen-[A-Za-z]'
mode = "full"
[policy.definition]
dead-letter-exchange = ""
dead-letter-routing-key = "own-dead"
"""


def test_a_policy_that_needs_the_rest_of_a_generated_name(own, tmp_path):
    """Before 4.4 the broker looks at no `x-name-prefix`."""
    file = tmp_path / "policies.toml"
    file.write_text(POLICY % own.via.vhost)
    own.restart(config=file)
    dead = own.queue("dead")
    declare = lambda: own.channel.queue_declare("", exclusive=True, arguments={"x-name-prefix": f"{PREFIX}.delay."}).method.queue
    declared = iter(declare, None)
    source = next(name for name in declared if name.removeprefix("amq.gen-")[0].isalpha())
    assert 'cause="generated_name"' in own.proxy.text()
    own.publish(source, b"rejected")
    own.channel.basic_reject(own.get(source)[0].delivery_tag, requeue=False)
    until(lambda: own.depth(dead) == 1, "a dead letter")
    other = next(name for name in declared if not name.removeprefix("amq.gen-")[0].isalpha())
    own.publish(other, b"discarded")
    own.channel.basic_reject(own.get(other)[0].delivery_tag, requeue=False)
    until(lambda: own.channel.queue_declare(other, passive=True).method.message_count == 0, "it is gone")
    assert own.depth(dead) == 1
