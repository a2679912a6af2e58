"""Prometheus scrapes running proxies: no alert while all is well, those of a fault when it is made, and data in every panel. In this order."""

import contextlib
import re
import time

import pytest

from faults import FAULTS, NOT_HERE
from lab import until
from test_rules import alerts, queries

EMPTY = {
    "dlx_proxy_redriven_total": "no operator sends anything back here",
    "dlx_proxy_rejects_kept_total": "no policy of the proxy names a target here",
    "dlx_proxy_delayed_publishes_total": "the setting is off here",
    "dlx_proxy_ack_timeouts_total": "no queue has an ack timeout here",
}
"""Counters with labels, which begin when there is something to count."""


def names(found):
    return {each["labels"]["alertname"] for each in found}


def test_each_alert_has_a_fault():
    assert set.union(*(fault.alerts for fault in FAULTS)) | NOT_HERE.keys() == alerts().keys()
    assert not set.union(*(fault.alerts for fault in FAULTS)) & NOT_HERE.keys()


def test_nothing_fires_while_all_is_well(scene):
    """The rules have little patience here, and look four times a second."""
    begun = scene.prometheus.looks()
    for fault in FAULTS:
        if not fault.quiet:
            scene.members[fault.name].live()
    counted = 'sum(dlx_proxy_messages_dead_lettered_total{outcome="confirmed"}) or vector(0)'
    most = 2 * sum(not fault.quiet for fault in FAULTS)
    until(lambda: scene.prometheus.query(counted)[0][1] == most, lambda: f"{scene.prometheus.query(counted)} of {most}")
    now = scene.prometheus.looks()
    until(lambda: scene.prometheus.looks() >= now + 12, "a few more looks")
    assert begun < now
    ever = scene.prometheus.query("count by (alertname, instance, vhost, node, cause, limit, link) (last_over_time(ALERTS{alertstate='firing'}[5m]))")
    assert ever == [], (ever, [scene.members[labels["vhost"]].proxy.text()[-5000:] for labels, _ in ever if "vhost" in labels])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_told(scene, fault):
    member = scene.members[fault.name]
    with contextlib.contextmanager(fault.make)(member, scene):
        fired = lambda: names(scene.prometheus.alerts(fault.name, member.node))
        until(lambda: fired() == fault.alerts, lambda: f"{fired()}, not {fault.alerts}: {member.proxy.text()[-2000:]}", deadline=fault.patience)
        found = scene.prometheus.alerts(fault.name, member.node)
        for each in found:
            words = "".join(each["annotations"].values())
            assert not re.search(r"<no value>|error|  | \.| ,|in \.|\{\{", words), words


def test_the_others_were_not_concerned(scene):
    for fault in FAULTS:
        ever = scene.prometheus.query(f'last_over_time(ALERTS{{alertstate="firing", instance="{fault.name}"}}[10m])')
        assert {labels["alertname"] for labels, _ in ever} <= fault.alerts | fault.passing, fault.name


def test_each_panel_has_data(scene):
    asked = list(queries())
    wrong = [f"{title}: {query}" for title, query in asked if bool(scene.prometheus.query(query)) == any(metric in query for metric in EMPTY)]
    assert asked and not wrong, "\n".join(wrong)
