"""Fixtures: the proxies, all at once, and a Prometheus that scrapes them."""

import logging
from types import SimpleNamespace

import pytest

from faults import FAULTS
from lab import brokers, until
from prometheus import Prometheus
from proxies import Member
from test_hook import Server


def pytest_configure():
    logging.getLogger("pika").setLevel(logging.CRITICAL)


@pytest.fixture(scope="session")
def scene(tmp_path_factory):
    broker, folder = brokers()[-1], tmp_path_factory.mktemp("monitoring")
    hook = Server()
    listening = hook.running()
    listening.__enter__()
    members, prometheus = {}, None
    names = [fault.name for fault in FAULTS]
    broker.make(names, [], [(broker.user, name, ".*", ".*", ".*") for name in names])
    try:
        for fault in FAULTS:
            settings = fault.settings | ({"on_dead_letter": hook.url} if fault.name == "hook" else {})
            members[fault.name] = Member(fault.name, broker, folder, **settings)
        for member in members.values():
            until(member.is_whole, member.proxy.text)
        for fault in FAULTS:
            if fault.begin:
                fault.begin(members[fault.name])
        prometheus = Prometheus(folder, {name: member.proxy.admin for name, member in members.items()})
        yield SimpleNamespace(members=members, prometheus=prometheus, hook=listening)
    finally:
        if prometheus:
            prometheus.stop()
        for member in members.values():
            member.kill()
        broker.unmake(names, [])
