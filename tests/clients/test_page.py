"""The pages of the admin port in a real browser: every way through them, by mouse and by keyboard, narrow and wide, light and dark; and that
nothing that strangers wrote acts there."""

import json
import re
import urllib.parse

import pytest

from browser import Browser
from console import ask, die, of_vhost, quoted
from lab import until
from raw import Raw, publish
from test_dead_letters import ODD

SCRIPT = "<script>document.title='run'</script><img src=x onerror=alert(1)>\"'&amp;"
LOOKS = [(360, "light"), (360, "dark"), (1600, "light"), (1600, "dark")]


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def at(browser, via, request):
    """Opens a page of the proxy as a user. At its end no page may have complained of anything that the test did not expect."""
    if via.broker is not request.config.brokers[-1]:
        pytest.skip("what a browser does is the same in front of each broker")
    pages = []

    def open(path="", user=None, password=None, ours=True):
        login = via.broker.parameters.credentials
        path = path if path.startswith("/") else place(via, path)
        page = browser.page("http://%s:%d%s" % (*via.proxy.admin, path), user or login.username, password or ("secret" if user else login.password))
        pages.append((page, ours))
        return page

    yield open
    for page, ours in pages:
        assert not ours or not page.problems
        page.close()


def place(via, rest=""):
    return f"/vhosts/{quoted(via.vhost)}{rest}"


def queue_at(via, queue, rest=""):
    return place(via, f"/queues/{quoted(queue)}{rest}")


def fits(page, name, looks=LOOKS):
    """Nothing is wider than the window. Takes pictures."""
    page.until(lambda: page.run("document.readyState") == "complete", "the style")
    for width, scheme in looks:
        page.looks(width, scheme=scheme)
        widths = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        page.picture(f"{name}-{width}-{scheme}")
        wide = page.run("[...document.querySelectorAll('*')].filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 100))")
        assert widths[0] <= widths[1] == width, (name, widths, wide)
    page.looks(1280)


def test_a_login_is_the_brokers(at, scene):
    via = scene.via
    wrong = at(user="nobody", password="wrong", ours=False)
    wrong.reads("Unauthorized", "ACCESS_REFUSED - Login was refused")
    fits(wrong, "unauthorized", LOOKS[:1])
    stranger = at(user="stranger", ours=False)
    stranger.reads("NOT_ALLOWED - access to vhost")
    right = at()
    right.reads("Dead-letter queues", "RabbitMQ", "This proxy")
    assert right.run("document.title") == f"Vhost {via.vhost} · dlx-proxy"


def test_from_a_queue_to_a_redrive_that_is_done(at, scene):
    via, dead = scene.via, scene.queue("dead", kind="classic")
    orders, slow = die(scene, (dead,), 6)
    page = at()
    page.fill("input[name=text]", dead)
    page.click("button", "Search")
    page.reads("Groups", orders, slow, "rejected", "expired", "error 0", "error 1")
    fits(page, "queue")

    page.click("td[data-label=Messages] a", "3")
    page.reads("Messages in", "Filter", '{"number": ')
    assert page.run("document.querySelectorAll('tbody tr').length") == 3
    fits(page, "list")
    page.click("a", "No filter")
    page.until(lambda: page.run("document.querySelectorAll('tbody tr').length") == 6, "all six")
    page.click("summary", "Filter")
    page.fill("input[name=header]", "tenant=2")
    page.click("form button", "Filter")
    page.until(lambda: page.run("document.querySelectorAll('tbody tr').length") == 2, "those of tenant 2")

    page.click("td[data-label=Preview] a", '"number": 2')
    page.reads("History", f"rejected in queue {orders}", "Body", "JSON", "tenant", "x-exception-message", "correlation")
    page.click("summary", "Redrive this message")
    page.reads("Where to")
    fits(page, "message")

    page.click(".trail a", f"queue {dead}")
    page.reads("Groups")
    page.click("summary", "Redrive all messages")
    assert page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Redrive').disabled"), "it is not counted yet"
    fits(page, "forms")
    page.click("label", "to a queue")
    page.fill("input[name=to-queue]", scene.queue("other", kind="classic"))
    page.fill("input[name=rate]", "1")
    page.click("button", "Dry run")
    page.reads("6 messages would go.")
    assert scene.depth(dead) == 6 and not [one for one in page.requests if "redrives?" in one[1] and "dry-run" not in one[1]]
    page.click("button", "Redrive")
    page.until(lambda: "/redrives/" in (page.run("location.pathname") or ""), "the page of the redrive")
    page.reads("It is running")
    page.until(lambda: scene.depth(scene.name("other")) >= 1 and page.text("[data-show=gone]") not in ("", "0"), "progress")
    page.click("button", "Pause")
    page.reads("It is paused")
    fits(page, "redrive")
    gone = page.text("[data-show=gone]")
    page.click("button", "Resume")
    page.until(lambda: page.text("[data-show=gone]") != gone, "it goes on")
    page.click("button", "Cancel")
    page.reads("It is cancelled")
    page.until(lambda: not page.run("document.querySelector('[data-tell]').checkVisibility()"), "no buttons of what has ended")
    left = 6 - scene.depth(scene.name("other"))
    until(lambda: scene.depth(dead) == left, "the rest is in its place")

    page.click(".trail a", f"queue {dead}")
    page.click("summary", "Redrive all messages")
    page.click("button", "Dry run")
    page.reads(f"{left} message")
    page.click("button", "Redrive")
    page.reads("It is completed")
    page.until(lambda: page.text("[data-show=gone]") == str(left), "all gone")
    page.click(".trail a", "vhost")
    page.reads("Redrives and purges", "completed", "cancelled", "Deaths in the last hour", orders, slow)
    charts = page.run("[...document.querySelectorAll('svg.chart')].map((one) => one.getAttribute('aria-label'))")
    assert any(chart.startswith("3 deaths in 60 minutes") for chart in charts), charts
    fits(page, "overview")
    page.click("td[data-label=Queue] a", dead)
    page.reads("Groups")


def test_a_purge_takes_the_name_of_the_queue(at, scene):
    dead = scene.queue("dead", kind="classic")
    die(scene, (dead,), 4)
    page = at(queue_at(scene.via, dead, "/messages?reason=expired"))
    page.click("summary", "Purge the messages that the filter takes")
    disabled = lambda: page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Purge for good').disabled")
    page.fill("[data-typed]", dead)
    assert disabled(), "it is not counted yet"
    page.click("button", "Dry run")
    page.reads("2 messages would be removed.")
    page.until(lambda: not disabled(), "it may be purged")
    page.type("x")
    assert disabled(), "that is another queue"
    fits(page, "purge", LOOKS[1:3])
    page.run("document.querySelector('[data-typed]').select()")
    page.type(dead)
    page.click("button", "Purge for good")
    page.reads("Purge", "It is completed", "removed for good")
    assert scene.depth(dead) == 2


def test_without_a_mouse(at, scene):
    dead = scene.queue("dead", kind="classic")
    orders, _ = die(scene, (dead,), 4)
    page = at()
    page.press("Tab")
    assert page.run("document.activeElement.matches('.skip')")
    page.press("Enter")
    page.tab_to("input[name=text]")
    page.type(dead)
    page.press("Enter")
    page.reads("Groups")
    page.tab_to("td a", "2")
    page.press("Enter")
    page.reads("Messages in")
    page.tab_to("td a", "number")
    page.press("Enter")
    page.reads("History")
    page.tab_to("pre.body")
    page.tab_to("summary", "Redrive")
    page.press("Enter")
    page.tab_to("input[name=to]")
    page.press("ArrowDown")
    assert page.run("document.activeElement.value") == "queue"
    page.tab_to("input[name=to-queue]")
    page.type(orders)
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is visible"
    page.tab_to("button.main", "Redrive")
    page.press(" ")
    page.reads("It is completed")
    until(lambda: scene.depth(orders) == 1, "it went")


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
    page.click("summary", "Purge the messages that the filter takes")
    page.click("button", "Dry run")
    page.reads("1 message would be removed.")
    page = at(queue_at(scene.via, dead))
    page.reads("Groups", "<script>", "\\u{202e}", "maxlen")
    fits(page, f"hostile-queue-{what}", LOOKS[:1] + LOOKS[-1:])
    page.click("a", "All messages")
    page.reads("Messages in")
    fits(page, f"hostile-list-{what}", LOOKS[:1] + LOOKS[-1:])
    page.click("td[data-label=Preview] a")
    page.reads("History", "<script>")
    fits(page, f"hostile-message-{what}", LOOKS[:1] + LOOKS[-1:])
    page.click("summary", "Redrive this message")
    page.click("label", "to a queue")
    page.fill("input[name=to-queue]", SCRIPT)
    page.click("button", "Redrive")
    page.reads("Progress", "queue <script>")
    page.until(lambda: page.text("[data-show=stay]") not in ("", "none"), "it stays")
    page.click(".trail a", "vhost")
    page.reads("Redrives and purges", "<script>")
    page.go("http://%s:%d%s" % (*scene.via.proxy.admin, queue_at(scene.via, dead, "/messages?" + urllib.parse.urlencode({"source": SCRIPT, "body": odd, "header": SCRIPT + "=" + SCRIPT}))))
    page.reads("No message was found.")
    assert page.run("document.querySelectorAll('img, main script, iframe').length") == 0
    assert page.run("document.querySelector('input[name=source]').value") == SCRIPT


def test_a_long_queue_has_pages(at, scene):
    dead = scene.fill(scene.queue("dead", kind="classic"), [b'{"number": %d}' % number for number in range(150)])
    page = at(queue_at(scene.via, dead, "/messages"))
    page.reads('{"number": 99}', "1 to 100")
    page.click("nav a", "Newer")
    page.reads('{"number": 100}', '{"number": 149}', "101 to 150")
    page.click("td[data-label=Preview] a", '"number": 100')
    page.reads("Message 101")


def test_dead_letters_as_they_come(at, scene):
    dlx = scene.exchange("dlx")
    orders = scene.queue(f"orders {SCRIPT}", dlx=dlx)
    die_once = lambda: (scene.publish("", orders), scene.reject(orders))
    die_once()
    page = at()
    page.until(lambda: orders in page.text() or page.go(page.run("location.href")), "it is in the charts")
    page.click("a", "Dead letters as they come")
    page.reads("live", orders, "confirmed")
    rows = lambda: page.run(f"[...document.querySelectorAll('tbody tr')].filter((one) => one.textContent.includes({json.dumps(orders)})).length")
    assert rows() == 1
    die_once()
    page.until(lambda: rows() == 2, "the second one")
    fits(page, "live")
    page.click("button", "Pause")
    die_once()
    page.reads("paused, 1 more")
    assert rows() == 2
    page.click("button", "Pause")
    page.until(lambda: rows() == 3, "the third one")


def test_what_leads_here_from_elsewhere_asks_first(at, scene):
    dead = scene.queue("dead", kind="classic")
    page = at(queue_at(scene.via, dead))
    page.reads("Groups")
    here = page.run("location.href")
    page.go("data:text/html," + quoted(f'<a href="{here}">here</a>'))
    page.click("a", "here")
    page.reads("A page from elsewhere led here")
    assert page.problems.pop() and not page.problems, "a status of 403 is written to the console"
    page.click("a", "Show the page")
    page.reads("Groups")


def test_each_page_has_its_headers(scene):
    dead = scene.queue("dead", kind="classic")
    via = scene.via
    for path in ("/", place(via), queue_at(via, dead), queue_at(via, dead, "/messages"), "/nothing"):
        status, text = via.proxy.get(path)
        assert status == (404 if path == "/nothing" else 401) and text.startswith("<!DOCTYPE html>"), path
    for name in set(re.findall(r'"(/assets/[^"]+)"', via.proxy.get("/")[1])):
        assert via.proxy.get(name)[0] == 200
    assert ask(via, of_vhost(via, "/redrives"))[0] == 200
