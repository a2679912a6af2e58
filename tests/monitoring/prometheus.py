"""A real Prometheus that scrapes proxies four times a second, and looks at its rules as often."""

import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from lab import REPOSITORY, until

LAB = Path(os.environ.get("DLX_TEST_LAB", REPOSITORY / ".lab"))
PROMTOOL = LAB / "bin/promtool"
RULES = REPOSITORY / "deploy/prometheus/dlx-proxy.rules.yml"
ACTIVE, EXAMPLES = RULES.read_text().split("      # === examples", 1)
ALL_RULES = ACTIVE + "\n" + re.sub(r"^( +)# ( *\S)", r"\1\2", EXAMPLES.split("\n", 1)[1], flags=re.M)
"""With the examples: what somebody may turn on has to work, too."""
DASHBOARD = REPOSITORY / "deploy/grafana/dlx-proxy.json"
OFTEN = "250ms"


class Prometheus:
    def __init__(self, folder, targets):
        """`targets`: address by name, which becomes the label `instance`."""
        # As they are delivered, but that two seconds are long.
        (folder / "rules.yml").write_text(re.sub(r"^( +for: ).*$", r"\g<1>2s", ALL_RULES, flags=re.M))
        scraped = [{"targets": ["%s:%d" % address], "labels": {"instance": name}} for name, address in targets.items()]
        config = {
            "global": {"scrape_interval": OFTEN, "scrape_timeout": OFTEN, "evaluation_interval": OFTEN},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "rabbit", "static_configs": scraped}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / "prometheus.log"
        words = [LAB / "bin/prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._is_up, self.log.read_text)
        until(lambda: len(self.query("count_over_time(up[1m]) > 2")) == len(targets), "each proxy has been scraped", deadline=30)

    def _is_up(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self._get("/-/ready")
        except OSError:
            return False

    def _get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.read()

    def query(self, expression):
        """The series of an instant vector: labels and value."""
        answer = json.loads(self._get("/api/v1/query", query=expression))["data"]
        assert answer["resultType"] == "vector", answer
        return [(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def alerts(self, instance=None, node=None):
        """What fires: of a proxy, of its vhost, which has its name, of the node that it goes to, or of the whole broker."""
        found = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        found = [each for each in found if each["state"] == "firing"]
        return [each for each in found if instance is None or instance in (each["labels"].get("instance"), each["labels"].get("vhost")) or node and node == each["labels"].get("node") or not {"instance", "vhost", "node"} & each["labels"].keys()]

    def looks(self):
        """How often the rules have been evaluated."""
        return float(re.search(r"^prometheus_rule_group_iterations_total{.*} (\S+)$", self._get("/metrics").decode(), re.M)[1])

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
