"""Fixtures: one proxy per broker for the whole session, one scene per test."""

import itertools
import logging
import re

import pytest

pytest.register_assert_rewrite("console", "lab", "pages", "raw", "scene")

from lab import Proxy, Via, brokers, in_turn
from pages import at, browser  # noqa: F401
from scene import Scene, own  # noqa: F401

USERS = {"all-rights": (".*", ".*", ".*"), "no-secrets": (".*", ".*", "^(?!.*secret)"), "stranger": None}
"""Users beside the administrator: configure, write, read; None: no rights in the vhost at all."""
_numbers = itertools.count(1)


def pytest_addoption(parser):
    parser.addoption("--only", default="", help="run only against brokers whose version starts so")
    parser.addoption("--once", action="store_true", help="run tests that hardly depend on the version on one of the oldest and the newest, in turn")


def pytest_generate_tests(metafunc):
    if "via" in metafunc.fixturenames:
        only = metafunc.config.getoption("only")
        found = [broker for broker in metafunc.config.brokers if broker.version.startswith(only)]
        metafunc.parametrize("via", found, ids=[broker.version for broker in found], indirect=True, scope="session")


def pytest_collection_modifyitems(config, items):
    if config.getoption("once"):
        versions = [broker.version for broker in (config.brokers[0], config.brokers[-1])]
        in_turn(config, items, "via", versions, lambda item: item.get_closest_marker("any_broker"))


def pytest_configure(config):
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it reports each close that a test asks for
    try:
        config.brokers = brokers()
    except LookupError as missing:
        raise pytest.UsageError(str(missing)) from None


@pytest.fixture(scope="session")
def via(request, tmp_path_factory):
    """The way to a broker, through a proxy."""
    broker = request.param
    way = Via(broker)
    try:
        rights = [(user, way.vhost, *USERS[user]) for user in USERS if USERS[user]]
        rights.append((broker.user, way.vhost, ".*", ".*", ".*"))
        broker.make([way.vhost], [(user, "secret") for user in USERS], rights)
        way.proxy = Proxy(broker.url, "full", tmp_path_factory.mktemp("proxy") / f"{broker.version}.log", DLX_PROXY_VHOSTS=way.vhost)
        way.proxy.wait_ready()
        yield way
        way.close()
    finally:
        if way.proxy:
            way.proxy.stop()
        broker.unmake([way.vhost], USERS)


@pytest.fixture
def scene(via, request):
    scene = Scene(via, re.sub(r"\W+", "-", request.node.originalname.removeprefix("test_"))[:40] + f".{next(_numbers)}")
    yield scene
    scene.close()


def pytest_runtest_setup(item):
    item.proxies_before = len(Proxy.logs)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the end of the logs of the proxies: of the session's, and of the test's own."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        way = getattr(item, "funcargs", {}).get("via")
        shared = [way.proxy.log] if way is not None and way.proxy else []
        for log in dict.fromkeys(shared + Proxy.logs[item.proxies_before :]):
            report.sections.append((f"end of {log}", "\n".join(log.read_text(errors="replace").splitlines()[-40:])))
