#!/usr/bin/env python3
"""Removes the proxy's intake exchanges that no queue and no policy of a vhost names. Runs on a node of the broker.

    remove-unused-exchanges.py VHOST

Stop the vhost's proxies before, or see to it that no client declares queues meanwhile: see docs/operations.md, "Intake exchanges".
"""
import base64
import json
import re
import subprocess
import sys

OURS = re.compile(r"dlx-proxy[+]{0,2}(/.*)?")  # another `prefix` begins these names
AT_ONCE = 100  # each rabbitmqctl takes a second


def rabbitmqctl(*words):
    command = ["rabbitmqctl", "-q", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout


def listed(vhost, what, *columns):
    return json.loads(rabbitmqctl(what, "-p", vhost, *columns, "--formatter", "json").strip() or "[]")


def texts(value):
    """All texts in it, however deep."""
    if isinstance(value, dict):
        value = list(value.values())
    return set().union(*map(texts, value)) if isinstance(value, list) else {value}


def unused(vhost):
    policies = [policy["definition"] for what in ("list_policies", "list_operator_policies") for policy in listed(vhost, what)]
    policies = [json.loads(policy) if isinstance(policy, str) else policy for policy in policies]
    used = texts([listed(vhost, "list_queues", "name", "arguments"), policies])
    names = [exchange["name"] for exchange in listed(vhost, "list_exchanges", "name")]
    return [name for name in names if OURS.fullmatch(name) and name not in used]


def erlang(text):
    return 'base64:decode(<<"%s">>)' % base64.b64encode(text.encode()).decode()


def remove(vhost, names):
    resources = f'rabbit_misc:r({erlang(vhost)}, exchange, Name) || Name <- [{", ".join(map(erlang, names))}]'
    rabbitmqctl("eval", f'[rabbit_exchange:delete(Resource, false, <<"sweep">>) || Resource <- [{resources}]].')


if len(sys.argv) != 2:
    sys.exit(__doc__)
vhost = sys.argv[1]
names = unused(vhost)
for first in range(0, len(names), AT_ONCE):
    remove(vhost, names[first:first + AT_ONCE])
    print(*names[first:first + AT_ONCE], sep="\n")
