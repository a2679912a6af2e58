"""Fixtures: each broker, a proxy in front of it, and a vhost for each program, so that one which failed leaves the others theirs."""

import contextlib
import logging

import pytest

from lab import Proxy, brokers
from programs import LIBRARIES

KINDS = ("classic", "quorum")


def pytest_generate_tests(metafunc):
    if "broker" in metafunc.fixturenames:
        metafunc.parametrize("broker", brokers(), ids=lambda broker: broker.version, indirect=True, scope="session")


def pytest_configure(config):
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    try:
        brokers()
    except LookupError as missing:
        raise pytest.UsageError(str(missing)) from None


class Way:
    """A broker and the proxy in front of it."""

    def __init__(self, broker, proxy):
        self.broker, self.proxy = broker, proxy

    def urls(self, vhost):
        """Of a vhost: direct, and through the proxy."""
        login = self.broker.parameters.credentials
        return ["amqp://%s:%s@%s:%d/%s" % (login.username, login.password, *address, vhost) for address in self.addresses]

    @property
    def addresses(self):
        return self.broker.address, self.proxy.address


@pytest.fixture(scope="session")
def broker(request):
    broker = request.param
    vhosts = [f"languages-{library.name}-{kind}" for library in LIBRARIES for kind in KINDS] + ["languages-amqp10"]
    broker.make(vhosts, [], [(broker.user, vhost, ".*", ".*", ".*") for vhost in vhosts])
    yield broker
    broker.unmake(vhosts, [])


@pytest.fixture(scope="session")
def way(broker, tmp_path_factory):
    proxy = Proxy(broker.url, "full", tmp_path_factory.mktemp("proxy") / f"{broker.version}.log")
    try:
        proxy.wait_ready()
        yield Way(broker, proxy)
    finally:
        proxy.stop()


@pytest.fixture(scope="module")
def configured(broker, tmp_path_factory):
    """Begins a proxy with these settings, in front of a broker with these vhosts."""
    with contextlib.ExitStack() as ends:

        def begin(settings, vhosts):
            folder = tmp_path_factory.mktemp("configured")
            config = folder / "dlx-proxy.toml"
            config.write_text(settings)
            broker.make(vhosts, [], [(broker.user, vhost, ".*", ".*", ".*") for vhost in vhosts])
            ends.callback(broker.unmake, vhosts, [])
            proxy = Proxy(broker.url, "full", folder / "log", DLX_PROXY_CONFIG=str(config))
            ends.callback(proxy.stop)
            proxy.wait_ready()
            return Way(broker, proxy)

        yield begin
