"""4, 5, 6: what a message that dies more than once remembers."""

import time

import pytest

from expect import COUNTS, Death, check, check_content
from lab import until


def by_all(scene, *reasons):
    """The rules when several made the history: the broker's are the lenient ones, if any death was its."""
    return next((by for by in map(scene.by, reasons) if by.maker == "broker"), scene.by(reasons[0]))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("through", ["default exchange", "named exchanges"])
def test_retry_loop(scene, kind, through):
    """6.2: work -> (rejected) -> wait -> (expired) -> work, five laps."""
    if through == "default exchange":
        work_x = wait_x = ""
        work_key, wait_key = scene.name("work"), scene.name("wait")
    else:
        work_x, wait_x = scene.exchange("work-x", "direct"), scene.exchange("wait-x", "direct")
        work_key = wait_key = "job"
    work = scene.queue("work", kind=kind, dlx=wait_x, dlk=wait_key)
    wait = scene.queue("wait", kind=kind, dlx=work_x, dlk=work_key, ttl=20)
    for queue, exchange, key in ((work, work_x, work_key), (wait, wait_x, wait_key)):
        if exchange:
            scene.bind(queue, exchange, key)
    sent = scene.publish(work_x, work_key, expiration="0600000")
    got = scene.get(work)
    for lap in range(1, 6):
        scene.channel.basic_reject(got[0].delivery_tag, requeue=False)
        got = scene.get(work)
        rejected = Death(work, "rejected", work_x, [work_key], lap, expiration="0600000")
        expired = Death(wait, "expired", wait_x, [wait_key], lap)
        counted = {}
        if kind == "quorum":  # the counts are about this queue: test_reasons.py asks for them
            counted = {name: value for name, value in got[1].headers.items() if name in COUNTS}
        check(got, sent, by_all(scene, "expired", "rejected"), [expired, rejected], first=rejected,
              exchange=work_x, key=work_key, delivered=True, keyed=True, extra_headers=counted)


def test_reject_into_itself(scene):
    """6.2: never dropped, one entry, its count rises; the entry keeps what it had first (4.2)."""
    queue = scene.queue("queue", dlx="")
    sent = scene.publish("", queue, expiration="600000")
    for count in range(1, 5):
        scene.channel.basic_reject(scene.get(queue)[0].delivery_tag, requeue=False)
        until(lambda: scene.depth(queue) == 1, "the message is back")
        got = scene.get(queue)
        deaths = [Death(queue, "rejected", "", [queue], count, expiration="600000")]
        check(got, sent, scene.by("rejected"), deaths, exchange="", key=queue, delivered=True)
        scene.channel.basic_nack(got[0].delivery_tag, requeue=True)


def test_time_is_that_of_the_first(scene):
    """4.2: a later death of the same queue and reason does not renew the time."""
    queue = scene.queue("queue", dlx="")
    scene.publish("", queue)
    moments = set()
    for _ in range(2):
        scene.channel.basic_reject(scene.get(queue)[0].delivery_tag, requeue=False)
        got = scene.get(queue)
        moments.add(got[1].headers["x-death"][0]["time"])
        scene.channel.basic_nack(got[0].delivery_tag, requeue=True)
        until(lambda: time.time() > max(moments).timestamp() + 1, "the next second")
    assert len(moments) == 1


@pytest.mark.parametrize("laps", [1, 2])
def test_ttl_cycle_is_dropped(scene, laps):
    """6.1, 6.2: of one queue, and of two."""
    names = [scene.name(f"cycle{number}") for number in range(laps)]
    for number in range(laps):
        scene.queue(f"cycle{number}", dlx="", dlk=names[(number + 1) % laps], ttl=400)
    sent = scene.publish("", names[0])
    # A message that dies behind it on a way as long, but not in a circle.
    dlx, sink = scene.target()
    for number in range(laps):
        last = number + 1 == laps
        scene.queue(f"line{number}", dlx=dlx if last else "", dlk="" if last else scene.name(f"line{number + 1}"), ttl=400)
    scene.publish("", scene.name("line0"))
    sink.one()
    assert [scene.depth(name) for name in names] == [0] * laps
    scene.assert_not_parked(sent)


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_order_of_the_entries(scene, reason):
    """4.2: newest first; 3.x reverses the older ones at each death."""
    chain = [scene.name(f"c{number}") for number in range(1, 6)]
    sink = scene.sink()
    for queue, following in zip(chain, chain[1:] + [sink.queue]):
        scene.source(queue.removeprefix(scene.prefix + "."), reason, dlx="", dlk=following)
    sent = scene.publish("", chain[0])
    deaths = []
    by = scene.by(reason)
    for queue in chain:
        scene.kill(queue, reason)
        deaths = [Death(queue, reason, "", [queue])] + (deaths[::-1] if by.older_entries_are_reversed else deaths)
    first = Death(chain[0], reason, "", [chain[0]])
    check(sink.one(), sent, by, deaths, first=first, exchange="", key=sink.queue, delivered=reason == "rejected", keyed=True)


def test_order_decides_about_a_cycle(scene):
    """4.2, 6.1: c1 (expired) -> c2 (rejected) -> c3 (expired) -> c1 goes on for ever on 4.x and ends on 3.x."""
    c1, c2, c3 = (scene.name(name) for name in ("c1", "c2", "c3"))
    scene.queue("c1", dlx="", dlk=c2, ttl=1)
    scene.queue("c2", dlx="", dlk=c3)
    scene.queue("c3", dlx="", dlk=c1, ttl=1)
    scene.publish("", c1)
    scene.channel.basic_reject(scene.get(c2)[0].delivery_tag, requeue=False)
    if scene.via.broker.is_4x:
        scene.get(c2)
        return
    dlx, sink = scene.target()
    last = scene.queue("last", dlx=dlx, ttl=1)
    scene.queue("next", dlx="", dlk=last, ttl=1)
    scene.publish("", scene.name("next"))
    sink.one()
    assert [scene.depth(queue) for queue in (c1, c2, c3)] == [0, 0, 0]


def republish(scene, got, queue):
    """Publish what was got again, with all of its properties, as many retry handlers do."""
    _, properties, body = got
    scene.channel.basic_publish("", queue, body, properties)


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_client_that_republishes_goes_on_counting(scene, reason):
    """4.4, 4.5: natively up to 3.12; through the proxy on every version."""
    dlx, sink = scene.target()
    source = scene.source("source", reason, dlx=dlx)
    sent = scene.publish("", source)
    by = scene.by(reason)
    for lap in range(1, 4):
        scene.kill(source, reason)
        got = sink.one()
        died = got[1].headers["x-death"][0]["time"].timestamp()
        deaths = [Death(source, reason, "", [source], lap if by.client_history_counts else 1)]
        check(got, sent, by, deaths, exchange=dlx, key=source, delivered=reason == "rejected")
        if by.same_second_counts_once:
            until(lambda: time.time() > died + 1, "the next second")
        republish(scene, got, source)


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_client_that_republishes_elsewhere(scene, reason):
    dlx, sink = scene.target()
    one, two = scene.source("one", reason, dlx=dlx), scene.source("two", reason, dlx=dlx)
    sent = scene.publish("", one)
    scene.kill(one, reason)
    republish(scene, sink.one(), two)
    scene.kill(two, reason)
    by = scene.by(reason)
    deaths = [Death(two, reason, "", [two])] + [Death(one, reason, "", [one])] * by.client_history_counts
    check(sink.one(), sent, by, deaths, exchange=dlx, key=two, delivered=reason == "rejected")


def test_history_over_native_and_managed_queues(scene):
    """A message dies by turns in queues that the proxy knows and in queues that only the broker does: nothing is forgotten."""
    names = [scene.name(name) for name in ("native1", "managed1", "native2", "managed2")]
    sink = scene.sink()
    outside = scene.via.direct.channel()
    for label, following in (("native1", names[1]), ("native2", names[3])):
        scene.queue(label, channel=outside, ttl=1, dlx="", dlk=following)
    for label, following in (("managed1", names[2]), ("managed2", sink.queue)):
        scene.queue(label, dlx="", dlk=following)
    outside.close()
    sent = scene.publish("", names[0])
    for queue in names[1::2]:
        scene.kill(queue, "rejected")
    reasons = ["expired", "rejected"] * 2
    deaths = []
    by = scene.by("rejected")
    for queue, reason in zip(names, reasons):
        deaths = [Death(queue, reason, "", [queue])] + (deaths[::-1] if by.older_entries_are_reversed else deaths)
    first = Death(names[0], "expired", "", [names[0]])
    check(sink.one(), sent, by, deaths, first=first, exchange="", key=sink.queue, delivered=True, keyed=True)


@pytest.mark.parametrize("reason", ["rejected", "expired"])
@pytest.mark.parametrize("what", ["text", "number", "empty"])
def test_a_header_that_is_no_history(scene, reason, what):
    """4.4, 4.5: thrown away and begun anew."""
    dlx, sink = scene.target()
    source = scene.source("source", reason, dlx=dlx)
    sent = scene.publish("", source, headers={"x-death": {"text": "x", "number": 3, "empty": []}[what], "other": 1})
    scene.kill(source, reason)
    headers = sink.one()[1].headers
    assert [(table["queue"], table["reason"], table["count"]) for table in headers["x-death"]] == [(source, reason, 1)]
    assert headers["other"] == 1
    scene.assert_not_parked(sent)


@pytest.mark.proxied
def test_members_that_are_no_tables_are_dropped(scene):
    """4.4: they crash a queue of 3.10; the proxy drops them."""
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    scene.publish("", source, headers={"x-death": ["text", 3, {"count": "many"}]})
    scene.kill(source, "rejected")
    newest = sink.one()[1].headers["x-death"][0]
    assert (newest["queue"], newest["reason"], newest["count"]) == (source, "rejected", 1)


@pytest.mark.proxied
def test_private_headers_stay_private(scene):
    """Those that a client sends are removed, and those that the proxy needs are not shown."""
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    forged = {name: ["forged"] for name in ("x-dlx-proxy-history", "x-dlx-proxy-bcc", "x-dlx-proxy-user-id")}
    sent = scene.publish("", source, headers={"BCC": ["blind"], "other": 1} | forged)
    got = scene.get(source)
    assert got[1].headers == {"other": 1}
    scene.channel.basic_reject(got[0].delivery_tag, requeue=False)
    sent.properties.headers = {"other": 1}
    deaths = [Death(source, "rejected", "", [source])]
    got = sink.one()
    check_content(got, sent, scene.by("rejected"), deaths)
    republish(scene, got, source)
    assert scene.get(source)[1].headers.keys() == got[1].headers.keys()
