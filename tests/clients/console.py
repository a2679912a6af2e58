"""What tests ask at the admin port: by HTTP, and by the commands."""

import base64
import contextlib
import json
import os
import subprocess
import urllib.parse
import urllib.request

from lab import BINARY, DEADLINE, environment, inherited, until

KINDS = {
    "classic": {"kind": "classic"},
    "priority": {"kind": "classic", "max_priority": 5},
    "quorum": {"kind": "quorum"},
    "unlimited": {"kind": "quorum", "limit": -1},
    "limited": {"kind": "quorum", "limit": 5},
    "stream": {"kind": "stream"},
}
"""Queues in which dead letters may lie."""


def kind(scene, name):
    """Its arguments, on this broker."""
    short = dict(KINDS[name])
    if name == "unlimited" and not scene.via.broker.is_4x:
        del short["limit"]  # it is the default there, and there is no other word for it
    return short


def management(via):
    """Where the management API of the broker is."""
    pairs = (pair.split("=", 1) for pair in os.environ.get("DLX_TEST_MANAGEMENT", "").split(",") if pair)
    return dict(pairs)[via.broker.version]


def quoted(name):
    return urllib.parse.quote(name, safe="")


def of_vhost(via, rest="", vhost=None):
    return f"/api/v1/vhosts/{quoted(vhost or via.vhost)}{rest}"


def of_queue(via, queue, rest="/dead-letters", vhost=None):
    return of_vhost(via, f"/queues/{quoted(queue)}{rest}", vhost)


def request(via, path, user=None, password=None, method="GET", file=None, **headers):
    """Asked as the administrator, or as another user."""
    login = via.broker.parameters.credentials
    credentials = f"{user or login.username}:{password or ('secret' if user else login.password)}"
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers |= {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}
    return urllib.request.Request("http://%s:%d" % via.proxy.admin + path, file, headers, method=method)


def live(via, path, **headers):
    """An open answer."""
    return contextlib.closing(urllib.request.urlopen(request(via, path, **headers), timeout=DEADLINE))


def ask(via, path, user=None, password=None, parameters=(), method="GET", header=True, file=None):
    """Status, JSON and headers of the answer."""
    query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
    extra = {"X_Dlx_Proxy_Request": "1"} if method != "GET" and header else {}
    try:
        with urllib.request.urlopen(request(via, path + query, user, password, method, file, **extra), timeout=DEADLINE) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal), refusal.headers


def answer(via, path, user=None, **parameters):
    """What it is if it is one."""
    pairs = [(name.replace("_", "-"), value) for name, values in parameters.items() for value in (values if isinstance(values, list) else [values])]
    status, said, _ = ask(via, path, user, parameters=pairs)
    assert status == 200, said
    return said


def look(scene, queue, rest="", **parameters):
    return answer(scene.via, of_queue(scene.via, queue, "/dead-letters" + rest), **parameters)


def numbers(scene, queue, **parameters):
    """The messages in a queue, by their bodies, in its order (from 4.3 on quorum queues have priorities, too)."""
    return [json.loads(letter["preview"])["number"] for letter in look(scene, queue, **parameters)["dead-letters"]]


def typed(scene, *words, group="dead-letters"):
    """A command line and its environment, for `subprocess`."""
    login = scene.via.broker.parameters.credentials
    url = "http://%s:%d" % scene.via.proxy.admin
    words = [BINARY, *group.split(), *words, "--url", url, "--vhost", scene.via.vhost]
    return {"args": words, "env": inherited() | environment(username=login.username, password=login.password)}


def command(scene, *words, file=None, **group):
    """Exit code, what it prints, what it says beside."""
    more = {"stdin": subprocess.DEVNULL} if file is None else {"input": file.encode()}
    done = subprocess.run(**typed(scene, *words, **group), **more, capture_output=True, timeout=DEADLINE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def rows(printed):
    return [line.split() for line in printed.splitlines()]


def order(scene, queue, what="redrives", status=202, user=None, **parameters):
    """Begins a redrive or a purge: the answer."""
    pairs = [(name.replace("_", "-"), value) for name, value in parameters.items()]
    said, begun, _ = ask(scene.via, of_queue(scene.via, queue, f"/{what}"), user, parameters=pairs, method="POST")
    assert said == status, begun
    return begun


def edit(scene, queue, letter, status=200, user=None, parameters=(), **change):
    """Changes a message and sends it back: the answer."""
    file = json.dumps(change).encode()
    path = of_queue(scene.via, queue, f"/dead-letters/{letter['id']}/edit")
    said, answer, _ = ask(scene.via, path, user, parameters=parameters, method="POST", file=file)
    assert said == status, answer
    return answer


def ended(scene, begun):
    """How it ended."""
    state = lambda: answer(scene.via, of_vhost(scene.via, f"/redrives/{begun['id']}"))
    return until(lambda: (now := state())["state"] not in ("running", "waiting", "paused") and now, lambda: f"the end of {state()}")


def ends(scene, begun, state="completed", **expected):
    """It ends so: numbers of what went, stays, was seen."""
    done = ended(scene, begun)
    assert done["state"] == state and expected.items() <= done.items(), done
    return done


def die(scene, queues, count):
    """So many messages die: every second one is rejected, the others expire. Their dead letters go to each of these queues, in one order."""
    dlx, seen = scene.exchange("dlx"), scene.queue("seen", kind="classic")
    for queue in (seen, *queues):
        scene.bind(queue, dlx)
    orders, slow = scene.queue("orders", dlx=dlx), scene.queue("slow", dlx=dlx, ttl=1)
    for number in range(count):
        headers = {"tenant": number % 3, "x-exception-message": f"error {number % 2}\nat line 7"}
        message = {"priority": number % 4, "headers": headers, "message_id": f"m{number}", "correlation_id": "correlation"}
        scene.publish("", slow if number % 2 else orders, b'{"number": %d}' % number, **message)
        if not number % 2:
            scene.reject(orders)
        scene.has(seen, number + 1)
    for queue in queues:  # a stream says so up to 5 s late
        scene.has(queue, count)
    return orders, slow
