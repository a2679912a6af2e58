"""The engine that container-test.sh has started, and what it is asked."""
import json
import os
import pathlib
import subprocess
import time

ENGINE = os.environ["DLX_TEST_ENGINE"]
TOP = pathlib.Path(__file__).resolve().parents[2]


def inside(*words, check=True, data=None):
    """Runs a program where the engine is; it finds this repository under the same name. Returns what it said."""
    there = ["nsenter", "--target", ENGINE, "--mount", "--net", "--pid", "--root", "env", "-C", str(TOP)]
    done = subprocess.run([*there, *words], input=data, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def docker(*words, check=True):
    return inside("docker", *words, check=check).stdout.strip()


def compose(*words, check=True):
    return inside("docker", "compose", "--project-name", "test", "--progress", "plain", *words, check=check)


def inspect(what):
    return json.loads(docker("inspect", what))[0]


def log(container):
    """Both streams, as `docker logs` gives them."""
    done = inside("docker", "logs", container)
    return done.stdout + done.stderr


def until(seconds, true, what):
    """Waits for a condition; returns what it gave."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        time.sleep(0.1)
    return found
