"""The first page in a real browser: whether something is wrong, and what; it renews itself, is in nobody's way, and says when it waits."""

import re

import pytest

from cable import Cable
from console import answer, management, of_vhost
from lab import until
from pages import LOOKS, fits, place

pytestmark = pytest.mark.any_broker


@pytest.fixture
def at_address(browser, own, request):
    """Opens the first page there."""
    if own.via.broker is not request.config.brokers[-1]:
        pytest.skip("what a browser does is the same in front of each broker")
    pages = []

    def open(address):
        login = own.via.broker.parameters.credentials
        pages.append(browser.page("http://%s:%d%s" % (*address, place(own.via)), login.username, login.password))
        return pages[-1]

    yield open
    for page in pages:
        page.close()


@pytest.fixture
def page(at_address, own):
    own.restart(management_url=management(own.via), parked_retry="1s")
    return at_address(own.proxy.admin)


LINK = "[...document.querySelectorAll('td[data-label=Queue] a')].find((one) => one.textContent === 'own-dead')"


def test_it_says_what_is_wrong_and_renews_itself(page, own):
    until(lambda: answer(own.via, of_vhost(own.via, "/status"))["healthy"], "it is ready")
    page.reads("Nothing is wrong.", "No message died", "No redrives yet.", "Updated")
    fits(page, "first-empty")
    dead, loaded = own.queue("dead"), page.loaded
    own.die(own.queue("one", dlx="", dlk=dead), *[b"m"] * 3)
    own.die(own.queue("two", dlx="own-nowhere"), *[b"m"] * 2)
    page.reads("1 problem needs attention.", "The parking queue holds 2 messages: exchange own-nowhere does not exist.", "Declare it, and they go out by themselves.")
    page.until(lambda: any("3 deaths in 60 minutes" in (chart or "") for chart in page.run("[...document.querySelectorAll('td[data-label=Trend] svg')].map((one) => one.getAttribute('aria-label'))")), "the trend of the dead-letter queue")
    page.until(lambda: page.text(".facts").startswith("Dead letters\n3\n"), "their number")
    fits(page, "first-problem")
    status = answer(own.via, of_vhost(own.via, "/status"))
    assert status["broker"]["version"] == own.via.broker.version and status["proxy"]["ready"]
    assert status["queues"]["full"] == 2 and status["retries"] == {"waiting": 0, "due": 0}
    # The missing exchange is declared: the messages go, and the page says so by itself.
    behind = own.queue("behind")
    own.channel.exchange_declare("own-nowhere", "fanout")
    own.channel.queue_bind(behind, "own-nowhere")
    try:
        page.reads("Nothing is wrong.")
    finally:
        own.channel.exchange_delete("own-nowhere")
    assert page.loaded == loaded and not page.problems


def test_what_somebody_does_is_not_disturbed(page, own):
    dead = own.queue("dead")
    own.die(own.queue("one", dlx="", dlk=dead), b"m")
    page.until(lambda: page.run(f"Boolean({LINK})"), "the queue")
    page.run(f"{LINK}.focus(), document.querySelector('details').open = true, window.before = document.querySelector('.facts'), 1")
    page.until(lambda: not page.run("window.before.isConnected"), "it was renewed")
    assert page.run("document.activeElement.textContent") == dead
    assert page.run("document.querySelector('details').open")
    page.fill("input[name=text]", dead[:3])
    page.run("window.before = document.querySelector('.facts'), 1")
    page.until(lambda: not page.run("window.before.isConnected"), "it was renewed")
    page.type(dead[3:])
    page.press("Enter")
    page.reads(f"Queue {dead}")
    page.fill("input[name=text]", "order 17")
    page.press("Enter")
    page.reads("Search for order 17", "None that you may read is known", dead, "messages with this text")
    page.fill("input[name=text]", "WN-D")
    page.press("Enter")
    page.reads("Search for WN-D", "Queues with this in their names", dead)
    page.until(lambda: page.text("section[aria-labelledby=named] ul").startswith(dead), "its name has the text")
    page.run("history.back(), 1")
    page.reads("Search for order 17")
    fits(page, "search", LOOKS[:1] + LOOKS[-1:])
    page.click("a", "messages with this text")
    page.reads("Messages in")
    assert page.run("document.querySelector('input[name=body]').value") == "order 17"
    page.click(".trail a", "vhost")
    page.click(".facts a", "list")
    page.reads("Handled queues", own.name("one"), "taken-over")
    fits(page, "handled", LOOKS[:1] + LOOKS[-1:])
    # Times: UTC, or those of this machine.
    page.click("button", "Times: UTC")
    page.reads("Times: local", selector="footer")
    page.run("document.body.dispatchEvent(new Event('beforeunload', { bubbles: true })), 1")
    assert page.run("getComputedStyle(document.body, '::before').animationName") == "waits", "what takes long shows that it goes on"


def test_a_lost_connection_is_said(page, own):
    page.reads("Updated")
    own.proxy.stop()
    page.reads("Connection lost: see whether the proxy runs. This page tries again, last answer")
    assert page.run("document.querySelector('[data-renew]').className").split() == ["renewed", "problem"]
    fits(page, "first-lost", LOOKS[:1])


STATE = "[document.querySelector('main').className, document.querySelector('[data-renew]').className, document.querySelector('[data-renew]').textContent]"


def waits(page):
    """What it says once it is known that numbers are old."""
    main, line, text = page.until(lambda: "stale" in (now := page.run(STATE) or [""])[0] and now, "old numbers are dimmed")
    return line, text


def test_an_answer_that_is_slow_is_waited_for_and_said(at_address, own):
    slow = Cable(own.proxy.admin)
    page = at_address(slow.address)
    page.reads("Updated")
    loaded = page.loaded
    slow.passes.clear()
    line, text = waits(page)
    assert text.startswith("Waiting for an answer, last answer ") and line == "renewed", "it is no problem yet"
    seconds = lambda: int(re.search(r"(\d+) s ago", page.text("[data-renew]"))[1])
    before = seconds()
    page.until(lambda: seconds() > before, "it moves while it waits")
    # Somebody who goes on sees that the next page comes. (While it does, the browser lets nobody ask the old one.)
    page.run("new MutationObserver(() => sessionStorage.shown = getComputedStyle(document.body, '::before').animationName).observe(document.body, { attributes: true }), 1")
    page.click(".facts a", "list")
    page.until(lambda: ("GET", place(own.via, "/queues")[1:]) in page.requests, "the next page is asked for")
    slow.passes.set()
    page.reads("Handled queues")
    assert page.run("sessionStorage.shown") == "waits"
    page.run("history.back(), 1")
    page.reads("Updated")
    page.until(lambda: "stale" not in page.run(STATE)[0], "as it was")
    # Nothing comes for longer than the page waits.
    slow.passes.clear()
    page.reads("Waiting for an answer, last answer ")
    page.reads("No answer for 30 s: see whether the proxy runs. This page tries again, last answer ")
    assert waits(page)[0].split() == ["renewed", "problem"]
    fits(page, "first-slow", LOOKS[:1])
    slow.passes.set()
    page.reads("Updated")
    assert "stale" not in page.run(STATE)[0] and page.loaded > loaded


def test_a_broker_that_does_not_answer_is_said(at_address, own):
    """The proxy asks the broker who the user is."""
    cable = Cable(own.address)
    own.address = cable.address
    own.restart(management_url=management(own.via))
    page = at_address(own.proxy.admin)
    page.reads("Updated")
    cable.passes.clear()
    line, text = waits(page)
    assert text.startswith("Waiting for an answer, last answer ")
    page.reads("No news: ", ", last answer ")
    assert waits(page)[0].split() == ["renewed", "problem"]
    cable.passes.set()
    page.reads("Updated")
    assert "stale" not in page.run(STATE)[0]
