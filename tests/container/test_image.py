"""The image by itself."""
import re

import pytest

from engine import TOP, compose, docker, inspect, log, until


@pytest.mark.dist
def test_the_image_adds_12_mb_at_most(image):
    added = inspect(image)["Size"] - inspect("debian:bookworm-slim")["Size"]
    print(f"{added / 1e6:.1f} MB over the base")
    assert 1e6 < added <= 12e6


def test_it_runs_as_user_10001_and_knows_its_health(image):
    config = inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"] == ["CMD", "dlx-proxy", "healthcheck"]


def clients(said):
    found = re.search(r"dlx-proxy starts .* clients=(\d+)", said)
    return found and int(found[1])


def test_the_log_says_how_many_clients_the_limit_allows(container):
    name = container(["--ulimit", "nofile=300:5000"], "run")
    room = until(10, lambda: clients(log(name)), "no line")
    assert 2300 < room < 2500, "the soft limit is raised"
    until(10, lambda: "listening" in log(name), "it does not listen")
    assert "lower than `max-connections`" not in log(name), "nobody has asked for more"


def test_there_is_a_warning_where_fewer_clients_fit_than_were_asked_for(container):
    name = container(["--ulimit", "nofile=5000:5000", "--env", "DLX_PROXY_MAX_CONNECTIONS=3000"], "run")
    until(10, lambda: "listening" in log(name), "it does not listen")
    assert "lower than `max-connections`" in log(name)


def test_a_bad_setting_ends_after_five_attempts(image):
    files = ("--file", "docker-compose.yml", "--file", "tests/container/bad-setting.yml")
    try:
        compose(*files, "up", "--detach", "--no-build", "--no-deps", "dlx-proxy")

        def ended():
            found = inspect("test-dlx-proxy-1")
            return found["State"]["Status"] == "exited" and found["RestartCount"] == 5 and found

        assert until(60, ended, "it is started again and again")["State"]["ExitCode"] == 64
        assert "nonsense" in log("test-dlx-proxy-1")
    finally:
        compose("down", "--timeout", "1")


def test_nothing_of_it_needs_a_shell(image):
    assert docker("run", "--rm", image, "--version").startswith("dlx-proxy ")


@pytest.mark.skipif(not list(TOP.glob("dist/*-image.tar")), reason="make release")
def test_the_image_of_a_release_is_run_like_this_one(image):
    name = docker("load", "--input", next(TOP.glob("dist/*-image.tar"))).split()[2]
    one, other = (inspect(each)["Config"] for each in (image, name))
    for key in ("User", "Healthcheck", "ExposedPorts", "Entrypoint", "Cmd"):
        assert one[key] == other[key], key
    assert set(one["Env"][1:]) == set(other["Env"][1:]), "all but PATH"
    assert docker("run", "--rm", name, "--version").startswith("dlx-proxy ")
