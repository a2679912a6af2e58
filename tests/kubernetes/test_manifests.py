"""The chart, and the two plain manifests that are made from it: valid for each Kubernetes from 1.29 on, and like the program's own settings."""

import copy
import os
import re
import subprocess
import tomllib

import kubernetes_validate
import pytest

from lab import REPOSITORY
from rendered import CHART, EXAMPLE, FILE, OLDEST, environment, helm, bytes, pod, proxy, rendered, seconds, settings

VERSIONS = [version for version in kubernetes_validate.utils.all_versions() if tuple(map(int, version.split(".")[:2])) >= (1, 29)]
DEFAULTS = tomllib.loads((REPOSITORY / "src/config/default.toml").read_text())
HEAD = """# Made from {of} by helm, for Kubernetes {version} and newer: `UPDATE=1 make kubernetes-test` writes it anew.
# docs/how-to/kubernetes.md says what to change: where your cluster can pull the image, at least.
"""
EVERYTHING = """
imagePullSecrets: [{name: registry}]
env: [{name: DLX_PROXY_UPSTREAM_CA_FILE, value: /etc/broker-ca/ca.pem}]
extraVolumes: [{name: broker-ca, configMap: {name: broker-ca}}]
extraVolumeMounts: [{name: broker-ca, mountPath: /etc/broker-ca, readOnly: true}]
standalone:
  nodeSelector: {disk: fast}
  tolerations: [{key: some, operator: Exists}]
  affinity: {nodeAffinity: {}}
  priorityClassName: high
  service: {annotations: {a: b}}
monitor: {enabled: true, labels: {release: prometheus}}
"""


@pytest.fixture(params=("standalone", "beside"))
def kinds(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("name, of", [("standalone", CHART), ("sidecar", EXAMPLE)])
def test_the_plain_manifests_are_what_helm_makes(name, of):
    path = REPOSITORY / f"deploy/kubernetes/{name}.yaml"
    made = HEAD.format(of=of.relative_to(REPOSITORY), version=OLDEST.removesuffix(".0")) + helm(of=of).stdout
    if "UPDATE" in os.environ:
        path.write_text(made)
    assert path.read_text() == made


def test_every_version_takes_every_object():
    assert "1.29" in VERSIONS[0] and len(VERSIONS) >= 9, VERSIONS
    for version in VERSIONS:
        for of in (CHART, EXAMPLE):
            for values in ("{}", EVERYTHING):
                rendered(of=of, version=version, values=values)


def test_a_mistake_is_found(standalone):
    wrong = copy.deepcopy(standalone["Deployment"])
    proxy({"Deployment": wrong})["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


# === against the program


def test_the_version_is_the_program_s(kinds):
    version = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert proxy(kinds)["image"] == f"dlx-proxy:{version}"


def test_ports_and_probes_are_where_the_program_listens(kinds, tmp_path):
    container, known = proxy(kinds), settings(kinds, tmp_path)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for setting, name in (("listen", "amqp"), ("admin", "admin")):
        host, _, port = known[setting].rpartition(":")
        assert port == DEFAULTS[setting].rpartition(":")[2], "the port that the documents and the other files name"
        outside = setting == "admin" or "Service" in kinds
        assert host == ("0.0.0.0" if outside else "127.0.0.1")
        if outside:
            assert ports.pop(name, None) or ports.pop(f"dlx-proxy-{name}") == int(port)
    assert not ports
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"]["path"] == path
        assert container[probe]["httpGet"]["port"] in {port["name"] for port in container["ports"]}


def test_the_settings_are_read_from_the_file_that_is_mounted(kinds):
    container = proxy(kinds)
    assert container["args"] == ["run", "--config", FILE]
    (mount,) = container["volumeMounts"]
    (volume,) = [each for each in pod(kinds)["volumes"] if each["name"] == mount["name"]]
    assert mount["mountPath"] == FILE.rpartition("/")[0]
    assert volume["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]


@pytest.mark.parametrize("version, sleep", [("1.29.0", 0), ("1.30.0", 5)])
def test_the_grace_period_is_enough(version, sleep, tmp_path):
    """For the sleep before, `drain-timeout`, and what docs/reference/limits.md gives the end of the process beside it: 2 s for a client, 5 s for the hook."""
    for of in (CHART, EXAMPLE):
        kinds = rendered(of=of, version=version)
        found = proxy(kinds).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert found == (sleep if of == CHART else 0)
        assert pod(kinds)["terminationGracePeriodSeconds"] >= found + seconds(settings(kinds, tmp_path)["drain-timeout"]) + 2 + 5


def most_memory(known, clients, management, largest=0):
    """The formula of docs/reference/limits.md, for one vhost, clients with a channel, a queue and a consumer each, and a largest dead letter of so many bytes."""
    mib, kib = 1 << 20, 1 << 10
    memory, connections = bytes(known["memory"]), clients and clients + 64
    size = 32 * mib + memory // 2 + len(known["vhosts"]) * (memory // 4 + 4 * mib)
    size += connections * 32 * kib + clients * (4 * kib + 2 * 2 * kib)
    size += known["admin-api"] * (3 * memory // 16 + 4 * largest + 4 * 8 * mib)
    return size + management * (128 + 68 * len(known["vhosts"])) * mib


def test_the_limit_of_memory_is_what_the_settings_may_take(kinds, tmp_path):
    known = settings(kinds, tmp_path, **{"management-url": "http://dlx-proxy:secret@rabbitmq:15672"})
    most = most_memory(known, known["max-connections"], management=True, largest=16 << 20)
    limit = bytes(proxy(kinds)["resources"]["limits"]["memory"])
    assert most <= limit, f"{most >> 20} MiB"
    assert limit <= 2 * most, "more than twice of what it can use is a mistake, too"


def test_the_formula_is_that_of_the_document():
    said = re.search(r"With the default settings, one vhost and no `management-url` that is ([\d,]+) MiB", (REPOSITORY / "docs/reference/limits.md").read_text())
    assert most_memory(DEFAULTS, 0, management=False) >> 20 == int(said[1].replace(",", ""))


def test_it_is_not_root_and_writes_nothing(kinds):
    user = re.search(r"^USER (\d+):(\d+)", (REPOSITORY / "Dockerfile").read_text(), re.M)
    context = pod(kinds).get("securityContext", {}) | proxy(kinds)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == tuple(map(int, user.groups()))
    assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]} and context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_management_url_is_taken_if_there_is_one(kinds, tmp_path):
    assert settings(kinds, tmp_path)["management-url"] == ""
    assert settings(kinds, tmp_path, **{"management-url": "http://rabbitmq:15672"})["management-url"].startswith("http://rabbitmq:15672")
    with pytest.raises(AssertionError, match="no upstream"):
        environment(proxy(kinds), {})


# === the objects against each other


def test_they_find_each_other():
    kinds = rendered(values="monitor: {enabled: true}")
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [kinds["Service"]["spec"]["selector"], kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    selectors += [kinds[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
    for selector in selectors:
        assert selector.items() <= labels.items()
    monitor = kinds["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= kinds["Service"]["metadata"]["labels"].items()
    assert [(each["port"], each["path"]) for each in monitor["endpoints"]] == [("admin", "/metrics")]


def test_sidecars_are_found_stay_and_come_first():
    kinds = rendered(of=EXAMPLE, values="monitor: {enabled: true}")
    (container,) = pod(kinds)["initContainers"]
    assert container == proxy(kinds) and container["restartPolicy"] == "Always"
    monitor = kinds["PodMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= kinds["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert monitor["podMetricsEndpoints"][0]["port"] in {port["name"] for port in container["ports"]}


def test_one_goes_when_another_is_ready_and_not_more_than_one(standalone):
    rolling = standalone["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert standalone["Deployment"]["spec"]["replicas"] >= 2 and rolling["maxUnavailable"] == 0 and rolling["maxSurge"] >= 1
    assert standalone["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


# === values


@pytest.mark.parametrize("wrong", ["standalone.replica=3", "standalone.networkPolicy.brokerPorts={0}", "image.tag.x=1", "sidecar.confg=x", "standalone.tls.secret=x"])
def test_values_that_are_written_wrongly_are_refused(wrong):
    done = helm("--set", wrong)
    assert done.returncode and "values don't meet the specifications of the schema" in done.stderr, done.stderr


def test_values_that_no_other_test_changes_are_heard():
    off = "standalone.podDisruptionBudget.enabled=false,standalone.networkPolicy.enabled=false,standalone.preStopSleepSeconds=0"
    alone = rendered("--set", off, values=EVERYTHING, version=VERSIONS[-1], release="other")
    spec = pod(alone)
    assert {"PodDisruptionBudget", "NetworkPolicy"}.isdisjoint(alone)
    assert spec["nodeSelector"] == {"disk": "fast"} and spec["priorityClassName"] == "high" and spec["tolerations"] and spec["affinity"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}] and "lifecycle" not in proxy(alone)
    assert alone["Service"]["metadata"]["annotations"] == {"a": "b"} and alone["Service"]["metadata"]["name"] == "other-dlx-proxy"
    assert alone["ServiceMonitor"]["metadata"]["labels"]["release"] == "prometheus"
    for kinds in (alone, rendered(of=EXAMPLE, values=EVERYTHING)):
        assert [each["name"] for each in pod(kinds)["volumes"]] == ["dlx-proxy", "broker-ca"]
        assert [each["mountPath"] for each in proxy(kinds)["volumeMounts"]] == ["/etc/dlx-proxy", "/etc/broker-ca"]
        assert environment(proxy(kinds), {"upstream": ""})["DLX_PROXY_UPSTREAM_CA_FILE"] == "/etc/broker-ca/ca.pem"


def test_the_management_api_of_a_managed_broker_is_let_through():
    """As docs/how-to/managed-brokers.md writes it."""
    (value,) = re.findall(r"--set '(standalone\.networkPolicy\.brokerPorts=[^']+)'", (REPOSITORY / "docs/how-to/managed-brokers.md").read_text())
    kinds = rendered("--set", value)
    assert [port["port"] for port in kinds["NetworkPolicy"]["spec"]["egress"][0]["ports"]] == [5671, 443]


TLS = [
    (
        "standalone: {tls: {secretName: dlx-proxy-tls}}",
        {"amqp": 5673, "amqps": 5671, "admin": 15673},
        {"listen": "0.0.0.0:5673", "listen-tls": "0.0.0.0:5671", "admin": "0.0.0.0:15673", "admin-tls": ""},
        None,
    ),
    (
        "standalone: {tls: {secretName: dlx-proxy-tls, plain: false, admin: true}}\nmonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}",
        {"amqps": 5671, "admin": 15673},
        {"listen": "", "listen-tls": "0.0.0.0:5671", "admin": "", "admin-tls": "0.0.0.0:15673"},
        "HTTPS",
    ),
]


@pytest.mark.parametrize("values, ports, listens, scheme", TLS, ids=["beside plain clients", "alone and on the admin port"])
def test_tls(values, ports, listens, scheme, tmp_path):
    kinds = rendered(values=values)
    container = proxy(kinds)
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
    # All that is open is in the Service and in the NetworkPolicy.
    assert {(each["name"], each["targetPort"], each["port"]) for each in kinds["Service"]["spec"]["ports"]} == {(name, name, port) for name, port in ports.items()}
    assert sorted(port["port"] for rule in kinds["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]) == sorted(ports)
    assert {container[probe]["httpGet"].get("scheme") for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {scheme}
    if scheme:
        (endpoint,) = kinds["ServiceMonitor"]["spec"]["endpoints"]
        assert endpoint["scheme"] == "https" and endpoint["tlsConfig"] == {"insecureSkipVerify": True}
        assert kinds["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    # The settings as the program understands them where the Secret is mounted.
    (volume,) = [each for each in pod(kinds)["volumes"] if "secret" in each]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    assert volume["secret"] == {"secretName": "dlx-proxy-tls"} and mount["readOnly"]
    subprocess.run([REPOSITORY / "tests/lab/certificates.sh", tmp_path], check=True, capture_output=True)
    for variable in container["env"]:
        if variable.get("value", "").startswith(mount["mountPath"]):
            ending = {"tls.crt": "server.pem", "tls.key": "server.key"}[variable["value"].removeprefix(mount["mountPath"] + "/")]
            variable["value"] = str(tmp_path / ending)
    known = settings(kinds, tmp_path)
    assert {name: known[name] for name in listens} == listens
