"""Fixtures: one proxy per broker and mode for the whole session, one scene per test."""

import logging
import re
import resource

import pytest

pytest.register_assert_rewrite("amqp10", "lab", "own", "raw", "retrying", "scene", "sides")

from lab import Proxy, Via, brokers, vhost_of
from scene import Scene

MODES = ("full", "rejects-only")
USERS = {  # configure, write, read
    "all-rights": (".*", ".*", ".*"),
    "no-bridges": (r"^(?!.*\.bridge/)", ".*", ".*"),
    "no-secrets": (".*", ".*", "^(?!.*secret)"),
    "stranger": None,
}
"""Users beside the administrator; None: no rights in the vhost at all."""


def pytest_addoption(parser):
    parser.addoption("--direct", action="store_true", help="run against the brokers themselves: the judge of every expectation")
    parser.addoption("--only", default="", help="run only against brokers whose version starts so")


def pytest_generate_tests(metafunc):
    if "via" in metafunc.fixturenames:
        modes = ("direct",) if metafunc.config.getoption("direct") else MODES
        if any(metafunc.definition.get_closest_marker(mark) for mark in ("once", "takeover")):
            modes = tuple(mode for mode in modes if mode != "rejects-only")
        only = metafunc.config.getoption("only")
        ways = [(broker, mode) for broker in metafunc.config.brokers if broker.version.startswith(only) for mode in modes]
        metafunc.parametrize("via", ways, ids=[f"{broker.version}-{mode}" for broker, mode in ways], indirect=True, scope="session")


def pytest_configure(config):
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it reports each close that a test asks for
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the thousand connections, also of the proxy
    try:
        config.brokers = brokers()
    except LookupError as missing:
        raise pytest.UsageError(str(missing)) from None


def pytest_collection_modifyitems(config, items):
    if config.getoption("direct"):
        for item in items:
            if item.get_closest_marker("proxied"):
                item.add_marker(pytest.mark.skip(reason="--direct"))


@pytest.fixture(scope="session")
def via(request, tmp_path_factory):
    """The way to a broker; see `Via`."""
    broker, mode = request.param
    proxy = None
    if mode != "direct":
        log = tmp_path_factory.mktemp("proxy") / f"{broker.version}-{mode}.log"
        proxy = Proxy(broker.url, mode, log, vhost=vhost_of(mode))
    way = Via(broker, mode, proxy)
    vhosts = (way.vhost, way.judge, way.foreign)
    try:
        rights = [(user, vhost, *USERS[user]) for user in USERS if USERS[user] for vhost in (way.vhost, way.judge)]
        rights += [(broker.user, vhost, ".*", ".*", ".*") for vhost in (way.vhost, way.judge)]
        rights += [("stranger", way.foreign, ".*", ".*", ".*")]
        broker.make(vhosts, [(user, "secret") for user in USERS], rights)
        if proxy:
            proxy.wait_ready()
        yield way
        way.close()
    finally:
        if proxy:
            proxy.stop()
        broker.unmake(vhosts, USERS)


@pytest.fixture
def scene(via, request):
    prefix = re.sub(r"\W+", "-", request.node.originalname.removeprefix("test_"))[:40]
    scene = Scene(via, prefix)
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
