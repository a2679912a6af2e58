"""Fixtures: a vhost for each test, and proxies before it."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clients"))

import pytest

pytest.register_assert_rewrite("cluster", "lab", "load")

from cluster import clusters
from lab import Proxy, in_turn
from load import Load


# Rounds are asked for, as they take long.
collect_ignore = [] if os.environ.get("DLX_TEST_ROUNDS") else ["test_rounds.py"]


def pytest_addoption(parser):
    parser.addoption("--only", default="", help="run only on the cluster whose version starts so")
    parser.addoption("--once", action="store_true", help="run each test on one of the clusters, in turn, unless the version matters to it")


def pytest_generate_tests(metafunc):
    if "cluster" in metafunc.fixturenames:
        only = metafunc.config.getoption("only")
        found = [cluster for cluster in clusters() if cluster.version.startswith(only)]
        metafunc.parametrize("cluster", found, ids=[cluster.version for cluster in found], scope="session")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("once"):
        return
    in_turn(config, items, "cluster", [cluster.version for cluster in clusters()], lambda item: not item.get_closest_marker("every_version"))


@pytest.fixture
def vhost(cluster, request):
    """Of this test; whatever it did to the nodes is undone afterwards."""
    name = request.node.name.split("[")[0].removeprefix("test_")
    cluster.make_vhost(name)
    yield name
    cluster.heal()


@pytest.fixture
def start(cluster, vhost, tmp_path):
    """Starts a proxy before the whole cluster; with `tls` it speaks that with the nodes, and clients with it."""
    running = []

    def start(nodes=(1, 2, 3), tls=False, **settings):
        log = tmp_path / f"proxy-{len(running)}.log"
        # A quorum queue that has just lost its leader nacks; what was parked for that goes to its target by itself. And one with a new leader may forget
        # the intake's consumer (S10.5), which is to be noticed before a test gives up.
        settings = {"vhosts": vhost, "log_level": "debug", "parked_retry": "3s", "intake_quiet": "20s"} | settings
        if tls:
            shown = {"tls_cert_file": cluster.certificate("server.pem"), "tls_key_file": cluster.certificate("server.key")}
            settings |= {"upstream_ca_file": cluster.certificate("ca.pem"), "listen_tls": "127.0.0.1:0"} | shown
        settings = {f"DLX_PROXY_{name.upper()}": value for name, value in settings.items()}
        proxy = Proxy(cluster.upstream(nodes, tls), "full", log, **settings)
        running.append(proxy)
        if tls:
            proxy.address, proxy.trust = proxy.tls_address, cluster.trust()
        proxy.wait_ready()
        return proxy

    yield start
    for proxy in running:
        if proxy.process.poll() is None:
            proxy.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the last warnings of the proxies."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for log in Proxy.logs:
            if log.exists():
                loud = [line for line in log.read_text(errors="replace").splitlines() if " DEBUG " not in line]
                report.sections.append((f"end of {log}", "\n".join(loud[-40:])))
