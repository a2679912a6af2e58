"""What the real tools make of the manifests: `kubectl kustomize` and `helm template`. Neither needs a cluster."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from lab import BINARY, REPOSITORY

LAB = Path(os.environ.get("DLX_TEST_LAB", REPOSITORY / ".lab"))
KUBECTL = LAB / "bin/kubectl"
HELM = Path(sys.executable).with_name("helm")
MANIFESTS = REPOSITORY / "deploy/kubernetes"
CHART = REPOSITORY / "deploy/helm/dlx-proxy"
FILE = "/etc/dlx-proxy/dlx-proxy.toml"
"""Where the proxy finds its settings."""


def run(*words, ok=True):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert not ok or done.returncode == 0, f"{words}: {done.stderr}"
    return done


def objects(text):
    return [each for each in yaml.safe_load_all(text) if each]


def kustomize(place):
    return objects(run(KUBECTL, "kustomize", MANIFESTS / place).stdout)


def overlay(folder, *lines):
    """A kustomization of a user's own; `{manifests}` in its lines is the folder of ours."""
    place = os.path.relpath(MANIFESTS, folder.resolve())
    (folder / "kustomization.yaml").write_text("\n".join(lines).format(manifests=place))
    return objects(run(KUBECTL, "kustomize", folder).stdout)


def chart(*options, release="dlx-proxy"):
    return objects(run(HELM, "template", release, CHART, *options).stdout)


def chart_of_an_application(folder, *options):
    """A chart that depends on ours: the example's application, in which the helpers stand where docs/kubernetes.md puts them."""
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: orders\nversion: 1.0.0\ndependencies: [{name: dlx-proxy, version: '*'}]\n")
    (folder / "values.yaml").write_text(
        "dlx-proxy:\n  standalone: {enabled: false}\n  sidecar: {enabled: true}\n  image: {repository: registry.example.com/dlx-proxy}\n"
    )
    shutil.copytree(CHART, folder / "charts/dlx-proxy", dirs_exist_ok=True)
    (folder / "templates").mkdir(exist_ok=True)
    application = yaml.safe_load((MANIFESTS / "example/orders.yaml").read_text())
    pod = application["spec"]["template"]
    pod["metadata"]["labels"]["dlx-proxy"] = "sidecar"
    pod["spec"] |= {"terminationGracePeriodSeconds": 60, "initContainers": "SIDECAR", "volumes": "VOLUME"}
    text = yaml.safe_dump(application)
    for word, helper in (("SIDECAR", "sidecar"), ("VOLUME", "volume")):
        text = text.replace(word, '{{ include "dlx-proxy.%s" (index .Subcharts "dlx-proxy") | nindent 8 }}' % helper)
    (folder / "templates/orders.yaml").write_text(text)
    return objects(run(HELM, "template", "orders", folder, *options).stdout)


def by_kind(rendered):
    """There is one of each kind."""
    kinds = {each["kind"]: each for each in rendered}
    assert len(kinds) == len(rendered), [each["kind"] for each in rendered]
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


def octets(text):
    """Of the program's sizes (64MiB) and of Kubernetes' (512Mi)."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)i?B?", str(text)).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]
