"""What helm makes of the chart, without a cluster: each object is valid for its Kubernetes. And what the program makes of the settings in it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml

from lab import BINARY, REPOSITORY

HELM = Path(sys.executable).with_name("helm")
CHART = REPOSITORY / "deploy/helm/dlx-proxy"
EXAMPLE = REPOSITORY / "deploy/helm/example"
"""The chart of an application, with ours below it."""
OLDEST = "1.29.0"
OPERATOR = {"ServiceMonitor", "PodMonitor"}
"""Kinds of the Prometheus Operator, which Kubernetes' own schemas do not have."""
FILE = "/etc/dlx-proxy/dlx-proxy.toml"
"""Where the proxy finds its settings."""


def helm(*options, of=CHART, version=OLDEST, release="dlx-proxy", values="{}"):
    values = values if of == CHART else yaml.safe_dump({"dlx-proxy": yaml.safe_load(values)})
    words = [HELM, "template", release, of, "--kube-version", version, "--values", "-", *options]
    return subprocess.run(words, input=values, capture_output=True, text=True, timeout=60)


def rendered(*options, version=OLDEST, **how):
    """The objects by kind: there is one of each."""
    done = helm(*options, version=version, **how)
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    for each in objects:
        if each["kind"] not in OPERATOR:
            kubernetes_validate.validate(each, version, strict=True)
    kinds = {each["kind"]: each for each in objects}
    assert len(kinds) == len(objects), [each["kind"] for each in objects]
    return kinds


def pod(kinds):
    return kinds["Deployment"]["spec"]["template"]["spec"]


def proxy(kinds):
    """The proxy's container."""
    spec = pod(kinds)
    (found,) = [each for each in spec["containers"] + spec.get("initContainers", []) if each["name"] == "dlx-proxy"]
    return found


def environment(container, secret):
    """The variables of a container, whose secrets are these."""
    values = {}
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        if reference is None:
            values[variable["name"]] = variable["value"]
        elif reference["key"] in secret:
            values[variable["name"]] = secret[reference["key"]]
        else:
            assert reference.get("optional"), f"no {reference['key']} in the Secret"
    return values


def settings(kinds, folder, **secret):
    """All settings as the program understands this file and these variables; it names what it does not know."""
    path = folder / "dlx-proxy.toml"
    path.write_text(kinds["ConfigMap"]["data"]["dlx-proxy.toml"])
    variables = environment(proxy(kinds), {"upstream": "amqp://dlx-proxy:secret@rabbitmq:5672"} | secret)
    done = subprocess.run([BINARY, "config", "check", "--config", path], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


def seconds(text):
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|s|m|h)", text))


def bytes(text):
    """Of the program's sizes (64MiB) and of Kubernetes' (512Mi)."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)i?B?", str(text)).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]
