"""The pages of the admin port in a real browser: every way through them, by mouse and by keyboard, narrow and wide, light and dark; and that
nothing that strangers wrote acts there."""

import json
import re

import pytest

from console import ask, of_vhost, quoted
from pages import LOOKS, SCRIPT, fits, place, queue_at

pytestmark = pytest.mark.any_broker


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


def test_dead_letters_as_they_come(at, scene):
    dlx = scene.exchange("dlx")
    scene.bind(scene.queue("dead", kind="classic"), dlx)  # what is parked would stay for the tests behind
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
    page.reads("No dead letters in")
    here = page.run("location.href")
    page.go("data:text/html," + quoted(f'<a href="{here}">here</a>'))
    page.click("a", "here")
    page.reads("A page from elsewhere led here")
    assert page.problems.pop() and not page.problems, "a status of 403 is written to the console"
    page.click("a", "Show the page")
    page.reads("No dead letters in")


def test_each_page_has_its_headers(scene):
    dead = scene.queue("dead", kind="classic")
    via = scene.via
    for path in ("/", place(via), queue_at(via, dead), queue_at(via, dead, "/messages"), "/nothing"):
        status, text = via.proxy.get(path)
        assert status == (404 if path == "/nothing" else 401) and text.startswith("<!DOCTYPE html>"), path
    for name in set(re.findall(r'"(/assets/[^"]+)"', via.proxy.get("/")[1])):
        assert via.proxy.get(name)[0] == 200
    assert ask(via, of_vhost(via, "/redrives"))[0] == 200
