"""Pages of the admin port in a real browser, for the tests of pages: opens them as a user, and looks whether they fit."""

import pytest

from browser import Browser
from console import quoted

SCRIPT = "<script>document.title='run'</script><img src=x onerror=alert(1)>\"'&amp;"
LOOKS = [(360, "light"), (360, "dark"), (800, "light"), (1280, "light"), (1280, "dark")]


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def at(browser, via, request):
    """Opens a page of the proxy, or of one `of` a test's own, as a user. At its end no page may have complained of anything that the test did not expect."""
    if via.broker is not request.config.brokers[-1]:
        pytest.skip("what a browser does is the same in front of each broker")
    pages = []

    def open(path="", user=None, password=None, ours=True, of=via):
        login = via.broker.parameters.credentials
        path = path if path.startswith("/") else place(via, path)
        page = browser.page("http://%s:%d%s" % (*of.proxy.admin, path), user or login.username, password or ("secret" if user else login.password))
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
