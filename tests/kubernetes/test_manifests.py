"""deploy/kubernetes and the chart: valid for each Kubernetes from 1.29 on, like each other, and like the program's own settings."""

import copy
import re
import tomllib

import kubernetes_validate
import pytest

from lab import REPOSITORY
from rendered import CHART, FILE, HELM, by_kind, chart, chart_of_an_application, environment, kustomize, octets, overlay, pod, proxy, run, seconds, settings

VERSIONS = [version for version in kubernetes_validate.utils.all_versions() if tuple(map(int, version.split(".")[:2])) >= (1, 29)]
OPERATOR = {"ServiceMonitor", "PodMonitor"}
"""Kinds of the Prometheus Operator, which Kubernetes' own schemas do not have."""
PLACES = ("standalone", "beside", "chart_standalone", "chart_beside")
HANDOVER = ["resources: ['{manifests}/standalone']", "components: ['{manifests}/handover', '{manifests}/monitoring']"]


@pytest.fixture(params=PLACES)
def kinds(request):
    return request.getfixturevalue(request.param)


def test_versions_are_what_the_documents_say():
    assert "1.29" in VERSIONS[0] and len(VERSIONS) >= 9, VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version, standalone, beside, chart_standalone, chart_beside, tmp_path):
    for rendered in (standalone, beside, chart_standalone, chart_beside, by_kind(chart("--kube-version", version))):
        for each in rendered.values():
            kubernetes_validate.validate(each, version, strict=True)
    for each in overlay(tmp_path, *HANDOVER):
        if each["kind"] not in OPERATOR:
            kubernetes_validate.validate(each, version, strict=True)


def test_a_mistake_is_found(standalone):
    wrong = copy.deepcopy(standalone["Deployment"])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


# === against the program


def test_the_version_is_the_program_s(kinds):
    version = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert proxy(kinds)["image"].endswith(f"dlx-proxy:{version}")
    assert f"appVersion: {version}\n" in (CHART / "Chart.yaml").read_text()


def test_ports_and_probes_are_where_the_program_listens(kinds, tmp_path):
    container, known = proxy(kinds), settings(kinds, tmp_path)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    defaults = tomllib.loads((REPOSITORY / "src/config/default.toml").read_text())
    for setting, name in (("listen", "amqp"), ("admin", "admin")):
        host, _, port = known[setting].rpartition(":")
        assert port == defaults[setting].rpartition(":")[2], "the port that the documents and the other files name"
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


def test_the_grace_period_is_enough(kinds, tmp_path):
    """For the sleep before, `drain-timeout`, and what docs/sizing.md gives the end of the process beside it: 2 s for a client, 5 s for the hook."""
    sleep = proxy(kinds).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    least = sleep + seconds(settings(kinds, tmp_path)["drain-timeout"]) + 2 + 5
    assert pod(kinds)["terminationGracePeriodSeconds"] >= least
    newest = by_kind(chart("--kube-version", "1.30.0"))
    assert proxy(newest)["lifecycle"]["preStop"]["sleep"]["seconds"] + least <= pod(newest)["terminationGracePeriodSeconds"]


def most_memory(known, clients, management, largest=0):
    """The formula of docs/sizing.md, for one vhost, clients with a channel, a queue and a consumer each, and a largest dead letter of so many octets."""
    mib, kib = 1 << 20, 1 << 10
    memory, connections = octets(known["memory"]), clients and clients + 64
    size = 32 * mib + memory // 2 + len(known["vhosts"]) * (memory // 4 + 4 * mib)
    size += connections * 32 * kib + clients * (4 * kib + 2 * 2 * kib)
    size += known["admin-api"] * (3 * memory // 16 + 4 * largest + 4 * 8 * mib)
    return size + management * (128 + 68 * len(known["vhosts"])) * mib


def test_the_limit_of_memory_is_what_the_settings_may_take(kinds, tmp_path):
    known = settings(kinds, tmp_path, **{"management-url": "http://dlx-proxy:secret@rabbitmq:15672"})
    most = most_memory(known, known["max-connections"], management=True, largest=16 << 20)
    limit = octets(proxy(kinds)["resources"]["limits"]["memory"])
    assert most <= limit, f"{most >> 20} MiB"
    assert limit <= 2 * most, "more than twice of what it can use is a mistake, too"


def test_the_formula_is_that_of_the_document():
    defaults = tomllib.loads((REPOSITORY / "src/config/default.toml").read_text())
    said = re.search(r"With the default settings, one vhost and no `management-url` that is ([\d,]+) MiB", (REPOSITORY / "docs/sizing.md").read_text())
    assert most_memory(defaults, 0, management=False) >> 20 == int(said[1].replace(",", ""))


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


def test_they_find_each_other(standalone, tmp_path):
    labels = standalone["Deployment"]["spec"]["template"]["metadata"]["labels"]
    objects = by_kind(overlay(tmp_path, *HANDOVER))
    selectors = [standalone["Service"]["spec"]["selector"], standalone["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    selectors += [standalone[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
    for selector in selectors:
        assert selector.items() <= labels.items()
    ports = {port["name"] for port in proxy(standalone)["ports"]}
    assert {port["targetPort"] for port in standalone["Service"]["spec"]["ports"]} == ports
    assert {rule["ports"][0]["port"] for rule in standalone["NetworkPolicy"]["spec"]["ingress"]} == ports
    monitor = objects["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= standalone["Service"]["metadata"]["labels"].items()
    assert [(each["port"], each["path"]) for each in monitor["endpoints"]] == [("admin", "/metrics")]
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in standalone["Service"]["spec"]["ports"]}


def test_sidecars_are_found(beside, tmp_path):
    monitor = by_kind(overlay(tmp_path, *HANDOVER))["PodMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= beside["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert monitor["podMetricsEndpoints"][0]["port"] in {port["name"] for port in proxy(beside)["ports"]}


def test_one_goes_when_another_is_ready_and_not_more_than_one(standalone):
    rolling = standalone["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert standalone["Deployment"]["spec"]["replicas"] >= 2 and rolling["maxUnavailable"] == 0 and rolling["maxSurge"] >= 1
    assert standalone["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_sidecar_stays_and_comes_first(beside, tmp_path):
    assert proxy(beside)["restartPolicy"] == "Always"
    (tmp_path / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once, labels: {dlx-proxy: sidecar}}\nspec: {template: {spec: {restartPolicy: Never,\n"
        "  initContainers: [{name: prepare, image: some}], containers: [{name: once, image: some}]}}}\n"
    )
    job = by_kind(overlay(tmp_path, "resources: [job.yaml]", "components: ['{manifests}/sidecar']"))["Job"]
    kubernetes_validate.validate(job, VERSIONS[0], strict=True)
    assert [each["name"] for each in job["spec"]["template"]["spec"]["initContainers"]] == ["dlx-proxy", "prepare"]
    (secret,) = {variable["valueFrom"]["secretKeyRef"]["name"] for variable in proxy(beside)["env"] if "valueFrom" in variable}
    assert secret == "dlx-proxy"


# === base and chart


def plain(each):
    """Without what only one of the tools writes: names by a hash or a release, its own labels, comments in the settings."""
    each = copy.deepcopy(each)

    def clean(part):
        if isinstance(part, dict):
            for labels in [value for key, value in part.items() if key in ("labels", "matchLabels", "selector") and isinstance(value, dict)]:
                for name in ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"):
                    labels.pop(name, None)
            part.get("annotations", {}).pop("checksum/config", None)
            if "dlx-proxy.toml" in part:
                part["dlx-proxy.toml"] = tomllib.loads(part["dlx-proxy.toml"])
            if isinstance(part.get("name"), str):
                part["name"] = re.sub(r"^orders-(?=dlx-proxy)|(?<=^dlx-proxy)-[0-9a-z]{10}$|(?<=sidecar)-[0-9a-z]{10}$", "", part["name"])
            for value in part.values():
                clean(value)
        elif isinstance(part, list):
            for value in part:
                clean(value)

    clean(each)
    return each


def same(base, rendered):
    assert base.keys() == rendered.keys()
    for kind in base:
        assert plain(base[kind]) == plain(rendered[kind]), kind


def test_the_chart_makes_the_same_objects(standalone, chart_standalone):
    same(standalone, chart_standalone)


def test_on_newer_ones_the_same_as_with_the_components(tmp_path):
    ours = by_kind(overlay(tmp_path, *HANDOVER))
    del ours["PodMonitor"]
    same(ours, by_kind(chart("--kube-version", "1.30.0", "--set", "monitor.enabled=true")))


def test_the_chart_makes_the_same_sidecar(beside, chart_beside):
    same(beside, chart_beside)


@pytest.mark.parametrize("wrong", ["standalone.replica=3", "standalone.networkPolicy.brokerPorts={0}", "image.tag.x=1", "sidecar.confg=x", "standalone.tls.secret=x"])
def test_values_that_are_written_wrongly_are_refused(wrong):
    done = run(HELM, "template", "dlx-proxy", CHART, "--set", wrong, ok=False)
    assert done.returncode and "values don't meet the specifications of the schema" in done.stderr, done.stderr


def test_values_that_no_other_test_changes_are_heard(tmp_path):
    (tmp_path / "values.yaml").write_text(
        """
imagePullSecrets: [{name: registry}]
env: [{name: DLX_PROXY_LOG_LEVEL, value: debug}]
standalone:
  nodeSelector: {disk: fast}
  tolerations: [{key: some, operator: Exists}]
  affinity: {nodeAffinity: {}}
  priorityClassName: high
  preStopSleepSeconds: 0
  service: {annotations: {a: b}}
  podDisruptionBudget: {enabled: false}
  networkPolicy: {enabled: false}
monitor: {enabled: true, labels: {release: prometheus}}
"""
    )
    kinds = by_kind(chart("--values", tmp_path / "values.yaml", "--kube-version", "1.37.0", release="other"))
    spec = pod(kinds)
    assert {"PodDisruptionBudget", "NetworkPolicy"}.isdisjoint(kinds)
    assert spec["nodeSelector"] == {"disk": "fast"} and spec["priorityClassName"] == "high" and spec["tolerations"] and spec["affinity"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}] and "lifecycle" not in proxy(kinds)
    assert environment(proxy(kinds), {"upstream": ""})["DLX_PROXY_LOG_LEVEL"] == "debug"
    assert kinds["Service"]["metadata"]["annotations"] == {"a": "b"} and kinds["Service"]["metadata"]["name"] == "other-dlx-proxy"
    assert kinds["ServiceMonitor"]["metadata"]["labels"]["release"] == "prometheus"
    for each in kinds.values():
        if each["kind"] not in OPERATOR:
            kubernetes_validate.validate(each, "1.37.0", strict=True)


# === TLS, and what else a user's own settings need


TLS = ["--set", "standalone.tls.secretName=dlx-proxy-tls"]


def listed(each):
    """What a Deployment, a Service or a policy has in lists, in any order: the tools differ there."""
    def ordered(part):
        if isinstance(part, dict):
            return {key: ordered(part[key]) for key in sorted(part)}
        return sorted(map(ordered, part), key=repr) if isinstance(part, list) else part

    return ordered(plain(each))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    run(REPOSITORY / "tests/lab/certificates.sh", folder)
    return folder


def with_tls(certificates, tmp_path, *options):
    """The objects, and the settings as the program understands them where the Secret is mounted."""
    kinds = by_kind(chart("--kube-version", "1.29.0", *TLS, *options))
    for each in kinds.values():
        if each["kind"] not in OPERATOR:
            kubernetes_validate.validate(each, "1.29.0", strict=True)
    (volume,) = [each for each in pod(kinds)["volumes"] if "secret" in each]
    (mount,) = [each for each in proxy(kinds)["volumeMounts"] if each["name"] == volume["name"]]
    assert volume["secret"] == {"secretName": "dlx-proxy-tls"} and mount["readOnly"]
    here = copy.deepcopy(kinds)
    for variable in proxy(here)["env"]:
        if variable.get("value", "").startswith(mount["mountPath"]):
            ending = {"tls.crt": "server.pem", "tls.key": "server.key"}[variable["value"].removeprefix(mount["mountPath"] + "/")]
            variable["value"] = str(certificates / ending)
    return kinds, settings(here, tmp_path)


def ports(kinds):
    """The numbers of the container's, each by its name. All that is open is in the Service and in the NetworkPolicy."""
    found = {port["name"]: port["containerPort"] for port in proxy(kinds)["ports"]}
    assert {(each["name"], each["targetPort"], each["port"]) for each in kinds["Service"]["spec"]["ports"]} == {(name, name, port) for name, port in found.items()}
    let_in = [port["port"] for rule in kinds["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(let_in) == sorted(found)
    return found


def test_tls_beside_plain_clients(certificates, tmp_path):
    kinds, known = with_tls(certificates, tmp_path)
    assert ports(kinds) == {"amqp": 5673, "amqps": 5671, "admin": 15673}
    assert [known[name] for name in ("listen", "listen-tls", "admin", "admin-tls")] == ["0.0.0.0:5673", "0.0.0.0:5671", "0.0.0.0:15673", ""]
    assert "scheme" not in proxy(kinds)["readinessProbe"]["httpGet"]


def test_tls_alone_and_on_the_admin_port(certificates, tmp_path):
    options = ["--set", "standalone.tls.plain=false,standalone.tls.admin=true,monitor.enabled=true,monitor.tlsConfig.insecureSkipVerify=true"]
    kinds, known = with_tls(certificates, tmp_path, *options)
    assert ports(kinds) == {"amqps": 5671, "admin": 15673}
    assert [known[name] for name in ("listen", "listen-tls", "admin", "admin-tls")] == ["", "0.0.0.0:5671", "", "0.0.0.0:15673"]
    assert {proxy(kinds)[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {"HTTPS"}
    (endpoint,) = kinds["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    assert kinds["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scheme"] == "https"


def test_the_component_for_tls_is_the_chart_s(tmp_path):
    ours = by_kind(overlay(tmp_path, "resources: ['{manifests}/standalone']", "components: ['{manifests}/tls']"))
    theirs = by_kind(chart("--kube-version", "1.29.0", *TLS))
    assert ports(ours) == ports(theirs)
    assert {kind: listed(each) for kind, each in ours.items()} == {kind: listed(each) for kind, each in theirs.items()}
    for each in ours.values():
        kubernetes_validate.validate(each, "1.29.0", strict=True)


VOLUMES = """
extraVolumes: [{name: broker-ca, configMap: {name: broker-ca}}]
extraVolumeMounts: [{name: broker-ca, mountPath: /etc/broker-ca, readOnly: true}]
env: [{name: DLX_PROXY_UPSTREAM_CA_FILE, value: /etc/broker-ca/ca.pem}]
"""


def test_volumes_of_a_user_are_in_both_places(tmp_path):
    (tmp_path / "values.yaml").write_text(VOLUMES)
    (tmp_path / "beside.yaml").write_text("dlx-proxy:\n" + VOLUMES.replace("\n", "\n  ").rstrip(" "))
    (tmp_path / "orders").mkdir()
    alone = by_kind(chart("--values", tmp_path / "values.yaml"))
    beside = by_kind(chart_of_an_application(tmp_path / "orders", "--values", tmp_path / "beside.yaml"))
    for kinds in (alone, beside):
        kubernetes_validate.validate(kinds["Deployment"], "1.29.0", strict=True)
        assert [each["name"] for each in pod(kinds)["volumes"]] == ["dlx-proxy", "broker-ca"]
        assert [each["mountPath"] for each in proxy(kinds)["volumeMounts"]] == ["/etc/dlx-proxy", "/etc/broker-ca"]
        assert environment(proxy(kinds), {"upstream": ""})["DLX_PROXY_UPSTREAM_CA_FILE"] == "/etc/broker-ca/ca.pem"


def egress(kinds):
    return [port["port"] for port in kinds["NetworkPolicy"]["spec"]["egress"][0]["ports"]]


def test_the_management_api_of_a_managed_broker_is_let_through(tmp_path):
    """As docs/managed-brokers.md writes it for both."""
    said = (REPOSITORY / "docs/managed-brokers.md").read_text()
    (value,) = re.findall(r"--set '(standalone\.networkPolicy\.brokerPorts=[^']+)'", said)
    assert egress(by_kind(chart("--set", value))) == [5671, 443]
    (patch,) = re.findall(r"```yaml\n(patches:\n.*?)```", said, re.S)
    ours = by_kind(overlay(tmp_path, "resources: ['{manifests}/standalone']", patch.replace("{", "{{").replace("}", "}}")))
    kubernetes_validate.validate(ours["NetworkPolicy"], "1.29.0", strict=True)
    assert 443 in egress(ours)


def test_all_folders_are_looked_into():
    """The components are, by way of overlays."""
    assert {each.name for each in (REPOSITORY / "deploy/kubernetes").iterdir()} == {"standalone", "sidecar", "example", "handover", "monitoring", "tls"}
    assert kustomize("standalone")
