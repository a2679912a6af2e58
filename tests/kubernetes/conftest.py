"""Fixtures: the objects of the two places where the proxy can be."""

import logging

import pytest

from rendered import EXAMPLE, rendered


def pytest_configure():
    logging.getLogger("pika").setLevel(logging.CRITICAL)


@pytest.fixture(scope="session")
def standalone():
    return rendered()


@pytest.fixture(scope="session")
def beside():
    """An application and the proxy as its sidecar."""
    return rendered(of=EXAMPLE)
