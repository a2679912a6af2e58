"""The image is built, and Compose brought up, once: by the files as they stand. PROFILE: how the program is compiled."""
import os
import time

import pytest

from engine import compose, docker


PROFILE = os.environ.get("PROFILE") or "dist"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("dist") and PROFILE != "dist":
            item.add_marker(pytest.mark.skip(reason=f"PROFILE={PROFILE}"))
    # What builds last comes last: the package needs minutes of its own.
    items.sort(key=lambda item: item.path.name == "test_package.py")


@pytest.fixture(scope="session")
def image():
    """The name of the image, just built."""
    compose("build", "--build-arg", f"PROFILE={PROFILE}")
    return "dlx-proxy"


@pytest.fixture(scope="module")
def up(image):
    """The name of the proxy's container; the broker and the proxy are healthy."""
    begun = time.monotonic()
    compose("up", "--detach", "--no-build", "--wait")
    print(f"docker compose up: {time.monotonic() - begun:.1f} s")
    yield "test-dlx-proxy-1"
    compose("down", "--volumes", "--timeout", "1")


@pytest.fixture
def container(image):
    """Runs a container of the image that ends with its test: container(options, arguments) returns its name."""
    names = []

    def run(options, *arguments):
        names.append(docker("run", "--detach", *options, image, *arguments))
        return names[-1]

    yield run
    for name in names:
        docker("rm", "--force", name)
