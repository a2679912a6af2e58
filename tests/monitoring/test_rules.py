"""The rules and the dashboard by themselves: promtool's own tests, and whether what they name exists."""

import json
import re
import subprocess

import yaml

from lab import REPOSITORY
from prometheus import ACTIVE, ALL_RULES, DASHBOARD, PROMTOOL, RULES

TESTS = REPOSITORY / "tests/monitoring/alerts.test.yml"
KNOWN = set(re.findall(r"^\| `(dlx_proxy_\w+)`", (REPOSITORY / "docs/reference/metrics.md").read_text(), re.M))
"""The table is made from the code."""


def promtool(*words):
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts():
    (group,) = yaml.safe_load(ALL_RULES)["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_the_rules_are_sound(tmp_path):
    (tmp_path / "rules.yml").write_text(ALL_RULES)
    for rules in (RULES, tmp_path / "rules.yml"):
        promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert ACTIVE.count("- alert: ") == 8


def test_each_alert_fires_and_does_not(tmp_path):
    (tmp_path / "rules.yml").write_text(ALL_RULES)
    (tmp_path / TESTS.name).write_text(TESTS.read_text())
    promtool("test", "rules", tmp_path / TESTS.name)
    tested = {}
    for each in yaml.safe_load(TESTS.read_text())["tests"]:
        tested[each["name"].split(",")[0]] = {bool(case["exp_samples"]) for case in each["promql_expr_test"]}
    assert tested == {name: {True, False} for name in alerts()}


def test_metrics_and_labels_exist():
    """A rule about a metric that is not there never fires, and nobody notices."""
    texts = [rule["expr"] for rule in alerts().values()] + [query for _, query in queries()]
    named = {name for text in texts for name in re.findall(r"dlx_proxy_\w+", text)}
    assert named <= KNOWN, named - KNOWN
    assert KNOWN - named == set(), "metrics that neither the dashboard nor an alert shows"


def test_the_documents_that_alerts_name_exist():
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        for document, heading in re.findall(r"(docs/[\w-]+\.md)(?:, ([^)]+))?", rule["annotations"]["description"]):
            text = (REPOSITORY / document).read_text()
            assert not heading or f"# {heading}\n" in text, f"{name}: {heading} in {document}"


def queries():
    """The title of each panel of the dashboard, and its queries as Grafana would send them when everything is chosen."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], re.sub(r"\$(job|instance|vhost)\b", ".*", target["expr"]).replace("$__rate_interval", "1m")


def test_panels_have_places_and_names_of_their_own():
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables | {"__rate_interval", "__all"}
