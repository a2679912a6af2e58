"""The pages of a queue, its messages and what moves them, and what adopts queues, in a real browser: by mouse and by keyboard, narrow and wide, light and dark; and that
nothing that strangers wrote acts there."""

import json
import urllib.parse

import pytest

from console import ask, die, look, of_vhost, order
from lab import until
from pages import LOOKS, SCRIPT, fits, place, queue_at
from raw import Raw, publish
from scene import user
from test_adoption import OURS, adopting, comes, ours, queues  # noqa: F401
from test_alteration import altering  # noqa: F401
from test_dead_letters import ODD

pytestmark = pytest.mark.any_broker

GO = "document.querySelector('dialog [data-show=go]')"


def rows(page):
    return page.run("document.readyState === 'complete' && document.querySelectorAll('main section tbody tr').length")


def moves(page):
    """What the page has sent to move messages; a dry run moves none."""
    return [path for method, path in page.requests if method == "POST" and "dry-run" not in path]


def test_a_group_goes_back_and_no_other(at, scene):
    """One group has the error of another one at its beginning, and one has none."""
    dead, orders = scene.queue("dead", kind="classic"), scene.queue("orders")
    deaths = [{"queue": orders, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": [orders]}]
    for number, error in enumerate(["no stock", "no stock", "no stock of apples", None, None, None]):
        scene.publish("", dead, b'{"number": %d}' % number, headers={"x-death": deaths} | ({"x-exception-message": error} if error else {}))
    scene.has(dead, 6)
    page = at(queue_at(scene.via, dead))
    page.reads("6 messages", "classic queue", "Groups", orders, "rejected", "no stock of apples")
    fits(page, "queue")
    page.click("td [data-move=redrives]")  # the largest first: without an error
    page.reads("Send back 3 messages", f"From {dead}, rejected in {orders}.", "Where to", selector="dialog")
    page.until(lambda: not page.run(f"{GO}.disabled"), "the dry run has counted it")
    fits(page, "dialog")
    page.press("Escape")
    page.until(lambda: page.run("document.activeElement.dataset.move") == "redrives", "the focus is where it was")
    page.run("[...document.querySelectorAll('td [data-move=purges]')].at(1).click()")
    page.reads("Purge 2 messages", "with “no stock”", "gone for good", selector="dialog")
    page.press("Escape")
    page.run("[...document.querySelectorAll('td [data-move=redrives]')].at(1).click()")
    page.reads("Send back 2 messages", selector="dialog")
    assert not moves(page)
    page.click("dialog button.main", "Send back 2 messages")
    page.reads("It is completed")
    page.until(lambda: page.text("[data-show=gone]") == "2", "both went")
    assert [group["error"] for group in look(scene, dead, "/groups")["groups"]] == [None, "no stock of apples"]
    until(lambda: scene.depth(orders) == 2, "they came back")


def test_a_redrive_shows_its_pace(at, scene):
    dead, other = scene.queue("dead", kind="classic"), scene.queue("other", kind="classic")
    die(scene, (dead,), 12)
    page = at(queue_at(scene.via, dead))
    page.click(".bar [data-move=redrives]")
    page.click("dialog label", "To a queue")
    page.fill("input[name=to-queue]", other)
    page.fill("input[name=limit]", "10")
    page.reads("Send back 10 messages", selector="dialog")
    page.fill("input[name=rate]", "1")
    page.click("dialog button", "Send back 10 messages")
    page.until(lambda: "/redrives/" in (page.run("location.pathname") or ""), "the page of the redrive")
    page.reads("It is running", "a second")
    page.until(lambda: page.text("[data-show=left]").split(" ")[-1] in ("s", "min"), "how long it takes")
    page.click("button", "Pause")
    page.reads("It is paused")
    fits(page, "redrive")
    gone = page.text("[data-show=gone]")
    page.click("button", "Resume")
    page.until(lambda: page.text("[data-show=gone]") != gone, "it goes on")
    page.click("button", "Cancel")
    page.reads("It is cancelled")
    page.until(lambda: not page.run("document.querySelector('[data-tell]').checkVisibility()"), "no buttons of what has ended")
    until(lambda: scene.depth(dead) + scene.depth(other) == 12 and scene.depth(dead) >= 2, "the rest is in its place")
    page.click(".trail a", "vhost")
    page.reads("cancelled", scene.name("dead"))


def test_a_redrive_says_why_no_message_comes(at, scene):
    """While it goes on, on the page that was opened before."""
    dead = scene.queue("dead", single_active=True)
    with scene.via.direct.channel() as active:
        active.basic_qos(prefetch_count=1)
        active.basic_consume(dead, lambda *_: None)
        scene.publish("", dead)
        scene.publish("", dead)
        scene.has(dead, 1)
        begun = order(scene, dead, "purges")
        page = at(place(scene.via, f"/redrives/{begun['id']}"))
        page.until(lambda: page.run("document.querySelector('[data-show=notes]').hidden") is True, "nothing to note yet")
        page.reads("It is running", "single active consumer?", selector="main")
        page.click("button", "Cancel")
        page.reads("It is cancelled")


def test_some_are_selected_and_followed(at, scene):
    dead = scene.queue("dead", kind="classic")
    orders, slow = die(scene, (dead,), 6)
    page = at(queue_at(scene.via, dead))
    page.click("td[data-label=Messages] a", "3")
    page.reads("Filter", '{"number": ')
    assert rows(page) == 3
    fits(page, "list")
    page.click("a", "No filter")
    page.until(lambda: rows(page) == 6, "all six")
    page.click("summary", "Filter")
    page.fill("input[name=header]", "tenant=2")
    page.click("form button", "Filter")
    page.until(lambda: rows(page) == 2, "those of tenant 2")
    page.click("td[data-label=Preview] a", '"number": 2')
    page.reads("Body", "JSON", '"number": 2', "tenant", "correlation", "History", "rejected", orders)
    assert "x-death" not in page.text(), "it is in the history"
    page.click("summary", "Show all")
    page.reads("x-death")
    fits(page, "message")
    page.click("button", "Pretty")
    assert page.text("pre.body") == '{"number": 2}'
    page.click("button", "Copy")
    page.reads("Copied")
    page.click("a[rel=next]")
    page.reads('"number": 5', "expired", slow)
    assert not page.run("document.querySelector('a[rel=next]')"), "the filter takes no more"
    page.click(".trail a", "messages")
    page.until(lambda: rows(page) == 2, "the list with its filter")
    page.click("a", "No filter")
    page.until(lambda: rows(page) == 6, "all six")
    exports = lambda: page.run("document.querySelector('[data-export]').getAttribute('href')")
    whole = exports()
    page.click("td [type=checkbox]")
    page.reads("1 selected")
    page.click("label", "Select all")
    page.reads("6 selected")
    page.click("td [type=checkbox]")
    page.reads("5 selected")
    fits(page, "selected", LOOKS[:4])
    assert exports().count("id=") == 5 and exports().startswith(whole)
    lines = page.run(f"(() => {{ const asked = new XMLHttpRequest(); asked.open('GET', {json.dumps(exports())}, false); asked.send(); return asked.responseText }})()")
    assert len(lines.splitlines()) == 6
    page.click(".bar [data-move=purges]")
    page.reads("Purge 5 messages", selector="dialog")
    assert page.run(f"{GO}.disabled"), "the name is missing"
    page.fill("[data-typed]", dead + "x")
    assert page.run(f"{GO}.disabled"), "that is another queue"
    page.run("document.querySelector('[data-typed]').select()")
    page.type(dead)
    fits(page, "purge", LOOKS[1:4])
    page.click("dialog button.danger", "Purge 5 messages")
    page.reads("Purge", "It is completed", "removed for good")
    assert [letter["preview"] for letter in look(scene, dead)["dead-letters"]] == ['{"number": 0}']


def test_what_fails_is_said_in_the_dialog(at, scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 2)
    page = at(queue_at(scene.via, dead))
    page.click(".bar [data-move=redrives]")
    page.click("dialog label", "To a queue")
    page.fill("input[name=to-queue]", "dlx-proxy.parked")
    page.click("dialog button.main", "Send back 2 messages")
    page.reads("belongs to the proxy", selector="dialog")
    assert page.problems.pop() and not page.problems, "a status of 403 is written to the console"
    assert not page.run(f"{GO}.disabled"), "it can be mended"


def test_a_queue_is_adopted_and_released(at, adopting, via):  # noqa: F811
    own = adopting
    with own.begin(), user(via, "reader") as reader:
        queues(own, "adopt", own.source, "--dry-run")  # the proxy hears of the queue
        comes(own, own.source, ("rejects-only", "broker-policy"))
        here = place(own.via, "/queues")
        page = at(here, of=own.via)
        fits(page, "handled")
        page.click("td [data-move=adopt]", "Adopt")
        page.reads(f"Adopt {own.source}", f"Plan: policy {OURS} for 1 queue ({own.source})", "queues release` goes back", selector="dialog")
        page.until(lambda: not page.run(f"{GO}.disabled"), "the plan is there")
        fits(page, "adopt")
        page.press("Escape")
        page.until(lambda: page.run("document.activeElement.dataset.move") == "adopt", "the focus is where it was")
        assert not moves(page) and not ours(own)

        page.click("td [data-move=adopt]")
        page.click("dialog button.main", f"Adopt {own.source}")
        page.reads(f"Done: policy {OURS}", selector="dialog")
        fits(page, "adopted")
        assert list(ours(own)) == [OURS]
        comes(own, own.source, ("full", "adopted"))
        page.click("dialog button", "Close")

        untagged = at(here, reader, of=own.via)
        untagged.click("td [data-move=release]")
        untagged.reads(f"Missing: your user {reader} needs the tag `policymaker`", selector="dialog")
        assert untagged.run(f"{GO}.disabled")
        release = of_vhost(own.via, "/queues/release")
        assert ask(own.via, release, parameters=[("queue", own.source)], method="POST", header=False)[0] == 403

        page.click("td [data-move=release]", "Release")
        page.click("dialog button.main", f"Release {own.source}")
        page.reads(f"Done: policy {OURS}", selector="dialog")
        assert not ours(own)
        comes(own, own.source, ("rejects-only", "broker-policy"))
        page.click("dialog button", "Close")
        page.reads("Adopt", selector="td [data-move]")


def test_a_queue_with_arguments_of_its_own_is_taken_over(at, altering):  # noqa: F811
    own = altering
    name = own.made("orders", dlx=own.exchange("dead"))
    own.channel.basic_consume(name, lambda *_: None)
    comes(own, name, ("rejects-only", "own-arguments"))
    page = at(place(own.via, "/queues"), of=own.via)
    page.click("td [data-move=alter]", "Take over")
    page.reads(f"Plan: make queue {name} anew, with 0 bindings", selector="dialog")
    fits(page, "alter")
    page.click("dialog button.main", f"Take over {name}")
    page.reads(f"Done: make queue {name} anew", "Clients waited for", selector="dialog")
    comes(own, name, ("full", "taken-over"))


def test_without_a_mouse(at, scene):
    dead = scene.queue("dead", kind="classic")
    orders, _ = die(scene, (dead,), 4)
    page = at(queue_at(scene.via, dead))
    page.press("Tab")
    assert page.run("document.activeElement.matches('.skip')")
    page.press("Enter")
    page.tab_to("td a", "2")
    page.press("Enter")
    page.until(lambda: "/messages" in page.run("location.pathname"), "the list")
    page.tab_to("td [type=checkbox]")
    page.press(" ")
    page.reads("1 selected")
    page.tab_to("td a", "number")
    page.press("Enter")
    page.reads("History")
    page.run("document.body.focus()")
    page.tab_to("[data-move=redrives]", "Send back")
    page.press("Enter")
    page.reads("Send back 1 message", selector="dialog")
    assert page.run("document.activeElement.name") == "to"
    page.press("ArrowDown")
    assert page.run("document.activeElement.value") == "queue"
    page.tab_to("input[name=to-queue]")
    page.type(orders)
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is visible"
    page.tab_to("dialog button", "Cancel")
    page.press("Enter")
    page.until(lambda: page.run("document.activeElement.dataset.move") == "redrives", "the focus is where it was")
    page.press(" ")
    page.tab_to("button.main", "Send back 1 message")
    page.press(" ")
    page.reads("It is completed")
    until(lambda: scene.depth(dead) == 3, "it went")


@pytest.mark.parametrize("what", ["text", "bytes"])
def test_nothing_of_a_stranger_acts(at, scene, what):
    dead, odd = scene.queue(f"dead {SCRIPT}\u202e", kind="classic"), SCRIPT.encode() if what == "text" else ODD
    dlx = scene.exchange("dlx")
    scene.bind(dead, dlx)
    source = scene.queue(f"source {SCRIPT}", dlx=dlx, ttl=1)
    fields = [(odd, b"S", odd), ("x-exception-message", b"S", odd), ("deep", b"F", [(odd, b"S", odd)])]
    with Raw(scene.via.broker, scene.via.vhost) as raw:
        raw.open_channel()
        raw.send(*publish(1, "", source, odd, fields))
        raw.send(*publish(1, dlx, odd, odd, fields + [("x-death", b"A", [(b"S", odd)])]))
        raw.send(*publish(1, dlx, odd, b"{}", [("x-death", b"A", [(b"F", [("queue", b"S", ODD), ("reason", b"S", "maxlen"), ("count", b"l", 1)])])]))
        scene.has(dead, 3)
    # Links and forms carry the bytes of a source whose name is not UTF-8.
    page = at(queue_at(scene.via, dead, "/messages?reason=maxlen&source=" + urllib.parse.quote(ODD)))
    page.click("[data-move=purges]")
    page.reads("Purge 1 message", selector="dialog")
    page.press("Escape")
    page.go(page.run("location.href").split("/messages")[0])
    page.reads("Groups", "<script>", "\\u{202e}", "maxlen")
    fits(page, f"hostile-queue-{what}", LOOKS[:1] + LOOKS[-1:])
    for at_row in range(3):
        page.run(f"document.querySelectorAll('td [data-move=redrives]')[{at_row}].click()")
        page.reads("Send back 1 message", selector="dialog")
        page.press("Escape")
    page.click("a", "All messages")
    page.reads("Messages in")
    fits(page, f"hostile-list-{what}", LOOKS[:1] + LOOKS[-1:])
    page.click("td[data-label=Preview] a")
    page.reads("History", "<script>")
    page.click("summary", "Show all")
    fits(page, f"hostile-message-{what}", LOOKS[:1] + LOOKS[-1:])
    page.click("[data-move=redrives]")
    page.click("dialog label", "To a queue")
    page.fill("input[name=to-queue]", SCRIPT)
    page.click("dialog button.main")
    page.reads("Progress", "queue <script>")
    page.until(lambda: page.text("[data-show=stay]") not in ("", "none"), "it stays")
    page.click(".trail a", "vhost")
    page.reads("Redrives and purges", "<script>")
    page.go("http://%s:%d%s" % (*scene.via.proxy.admin, queue_at(scene.via, dead, "/messages?" + urllib.parse.urlencode({"source": SCRIPT, "body": odd, "header": SCRIPT + "=" + SCRIPT}))))
    page.reads("No message in", "matches the filter.")
    assert page.run("document.querySelectorAll('img, main script, iframe').length") == 0
    assert page.run("document.querySelector('input[name=source]').value") == SCRIPT


def test_a_long_queue_has_pages(at, scene):
    dead = scene.fill(scene.queue("dead", kind="classic"), [b'{"number": %d}' % number for number in range(150)])
    page = at(queue_at(scene.via, dead, "/messages"))
    page.reads('{"number": 99}', "1 to 100 of 150")
    page.click("nav a", "Newer")
    page.reads('{"number": 100}', '{"number": 149}', "101 to 150")
    page.click("td[data-label=Preview] a", '"number": 100')
    page.reads("Message 101")
    page.click("a[rel=prev]")
    page.reads("Message 100")
    page.click(".trail a", "messages")
    page.reads('{"number": 100}', "101 to 150")


def test_a_queue_with_many_groups(at, scene):
    dead = scene.queue("dead", kind="classic")
    for number in range(1500):
        scene.publish("", dead, headers={"x-exception-message": f"error {number}"})
    scene.has(dead, 1500)
    page = at(queue_at(scene.via, dead))
    page.reads("1\u202f500 messages", "The largest 200 groups are shown.", "1\u202f300 messages more")
    assert rows(page) == 200
