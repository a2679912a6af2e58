"""Fixtures: what the real tools make of deploy/kubernetes and of the chart."""

import logging

import pytest

from rendered import by_kind, chart, chart_of_an_application, kustomize


def pytest_configure():
    logging.getLogger("pika").setLevel(logging.CRITICAL)


@pytest.fixture(scope="session")
def standalone():
    return by_kind(kustomize("standalone"))


@pytest.fixture(scope="session")
def beside():
    """The example: an application and the proxy as its sidecar."""
    return by_kind(kustomize("example"))


@pytest.fixture(scope="session")
def chart_standalone():
    return by_kind(chart("--kube-version", "1.29.0"))


@pytest.fixture(scope="session")
def chart_beside(tmp_path_factory):
    return by_kind(chart_of_an_application(tmp_path_factory.mktemp("orders")))
