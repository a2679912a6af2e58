"""Dead letters that are edited and sent back: what arrives, what stays, and that nothing is lost. (What an edit may say: `console/admin/testdata/requests.txt`
and `letter/tests/change.rs`.)"""

import hashlib

import pytest

from browser import Browser
from console import edit, look, of_queue
from lab import until
from muting import Muting
from scene import PREFIX, user

EDITS = pytest.mark.parametrize("own", [{"admin_edit": "true"}], ids=["edits"], indirect=True)
BODY = b'{"amount": -1}'
GOOD = {"encoding": "text", "text": '{"amount": 1}'}


def died(own, kind="classic", exchange="", **properties):
    """A queue in which messages die, and the one that they go to, with one message."""
    orders, dead = own.queue("orders", dlx="", dlk=f"{PREFIX}-dead"), own.queue("dead", kind=kind)
    if exchange:
        own.bind(orders, exchange, "new")
    own.publish(exchange, "new" if exchange else orders, BODY, **properties)
    own.reject(orders)
    own.has(dead, 1)
    return orders, dead


def letter_of(own, queue):
    (letter,) = look(own, queue)["dead-letters"]
    return letter


@pytest.mark.every_broker
@EDITS
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_edited_message_arrives_and_the_original_goes(own, kind):
    headers = {"tenant": 1, "trace": "abc", "kept": [1, {"deep": True}]}
    orders, dead = died(own, kind, headers=headers, message_id="m1", user_id=own.via.broker.user)
    letter = letter_of(own, dead)
    changed = [{"name": "tenant", "type": "long", "value": 7}, {"name": "note", "type": "longstr", "value": "ü"}]
    answer = edit(own, dead, letter, body=GOOD, headers=changed, remove=["trace"])
    assert (answer["state"], answer["gone"], own.depth(dead)) == ("completed", 1, 0), answer
    method, properties, body = message = own.get(orders)
    assert (body, properties.message_id, properties.user_id) == (GOOD["text"].encode(), "m1", None)
    assert (method.exchange, method.routing_key) == ("", orders)
    got = properties.headers
    assert (got["tenant"], got["note"], got["kept"]) == (7, "ü", headers["kept"]) and "trace" not in got, got
    assert got["x-death"][0]["queue"] == orders and not [name for name in got if name.startswith("x-dlx-proxy")], got
    edit(own, dead, letter, status=404, body=GOOD)

    # Dead again, it says who changed it, and what it was.
    own.channel.basic_reject(message.method.delivery_tag, requeue=False)
    own.has(dead, 1)
    letter = letter_of(own, dead)
    shown = look(own, dead, f"/{letter['id']}")
    (mark,) = [header["value"] for header in shown["headers"] if header["name"] == "x-dlx-proxy-edited"]
    assert (mark["by"], mark["sha256"]) == (own.via.broker.user, hashlib.sha256(BODY).hexdigest()), mark
    assert (letter["redriven"], shown["body"]["text"]) == (1, GOOD["text"])

    # Headers alone; what the broker would refuse stays as it is.
    nowhere = [("to-queue", own.name("nowhere"))]
    refused = edit(own, dead, letter, 409, parameters=nowhere, remove=["note"])
    assert refused["detail"] == "the message stays as it is: unroutable", refused
    assert letter_of(own, dead)["id"] == letter["id"]
    large = [{"name": "large", "type": "longstr", "value": "x" * (1 << 18)}]
    assert edit(own, dead, letter, 409, headers=large)["detail"].endswith(": too_big")
    edit(own, dead, letter, remove=["note"])
    _, properties, body = own.get(orders)
    assert body == GOOD["text"].encode() and "note" not in properties.headers and properties.headers["tenant"] == 7


@pytest.mark.every_broker
@EDITS
def test_who_may_not_publish_it_edits_nothing(own):
    shop = own.exchange("shop", "direct")
    _, dead = died(own, exchange=shop)
    letter = letter_of(own, dead)
    with user(own.via, "reader", f"^{dead}$", "^$", f"^{dead}$"):
        assert "amq.default" in edit(own, dead, letter, 403, "reader", body=GOOD)["detail"]
    with user(own.via, "clerk", f"^{dead}$", "^amq\\.default$", f"^{dead}$"):
        assert f"exchange '{shop}'" in edit(own, dead, letter, 409, "clerk", body=GOOD)["detail"]
    with user(own.via, "writer", ".*", ".*", "^$"):
        edit(own, dead, letter, 403, "writer", body=GOOD)
    assert (letter_of(own, dead)["id"], own.depth(dead)) == (letter["id"], 1)


@pytest.mark.every_broker
def test_a_proxy_that_is_killed_before_the_confirm_leaves_the_original(own):
    cable = Muting(own.via.broker.address)
    usual, own.address = own.address, cable.address
    own.restart(admin_edit="true", browse_timeout="2s")
    _, dead = died(own)
    other, letter = own.queue("other"), letter_of(own, dead)
    cable.exchange = ""
    answer = edit(own, dead, letter, 202, parameters=[("to-queue", other)], body=GOOD)
    assert (answer["state"], answer["gone"]) == ("running", 0), answer
    own.has(other, 1)
    own.proxy.kill()
    own.has(dead, 1)
    assert {body for *_, body in own.all_of(other, 1)} == {GOOD["text"].encode()}
    own.address = usual
    own.restart(admin_edit="true")
    cable.close()
    edit(own, dead, letter, parameters=[("to-queue", other)], body=GOOD)
    assert (own.depth(dead), own.depth(other)) == (0, 1)


@EDITS
def test_the_page_sends_only_what_was_changed(own, request):
    """Hostile headers and line breaks stay what they are."""
    if own.via.broker is not request.config.brokers[-1]:
        pytest.skip("what a browser does is the same in front of each broker")
    headers = {"tenant": 1, "trace": "\n<script>\u202e\nline 2", "gone": "x"}
    orders, dead = died(own, headers=headers)
    login, browser = own.via.broker.parameters.credentials, Browser()
    try:
        letter = letter_of(own, dead)
        path = of_queue(own.via, dead, f"/messages/{letter['id']}").removeprefix("/api/v1")
        page = browser.page("http://%s:%d%s" % (*own.proxy.admin, path), login.username, login.password)
        page.click("summary", "Edit this message")
        for width, scheme in ((360, "light"), (1280, "dark"), (1280, "light")):
            page.looks(width, scheme=scheme)
            page.picture(f"edit-{width}-{scheme}")
            assert page.run("document.documentElement.scrollWidth") <= width
        page.click("button", "Send the edited message")
        page.reads("it changes nothing")
        page.run("document.querySelector('textarea[name=body]').select()")
        page.type('\n{"amount": 1}\n')
        page.run("document.querySelector('[data-name=tenant]').select()")
        page.type("8")
        page.click("input[aria-label='Remove gone']")
        page.fill("input[name=new-name]", "new")
        page.fill("input[name=new-value]", "<b>")
        page.click("button", "Send the edited message")
        page.until(lambda: "/redrives/" in (page.run("location.pathname") or ""), "the page of the redrive")
        page.reads("completed")
        message = own.get(orders)
        got = message.properties.headers
        assert message.body == b'\n{"amount": 1}\n' and "gone" not in got
        assert (got["tenant"], got["trace"], got["new"]) == (8, headers["trace"], "<b>"), got
        own.channel.basic_reject(message.method.delivery_tag, requeue=False)
        own.has(dead, 1)
        page.go("http://%s:%d%s" % (*own.proxy.admin, path.replace(letter["id"], letter_of(own, dead)["id"])))
        page.reads(f"Edited by {login.username}")
        assert page.problems == ["Failed to load resource: the server responded with a status of 400 (Bad Request)"]
    finally:
        browser.close()
