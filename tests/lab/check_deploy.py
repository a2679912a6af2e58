"""The part of check-deploy.sh that reads structure: the files parse, and what they name exists.

    check_deploy.py OUT        writes the proxy's settings in each file to OUT/<file>.env, one NAME=VALUE a line
"""
import json
import pathlib
import re
import shlex
import sys

import yaml

out = pathlib.Path(sys.argv[1])
problems = []


def need(condition, problem):
    if not condition:
        problems.append(problem)


def settings(name, values):
    own = {key: value for key, value in values.items() if key.startswith("DLX_PROXY_")}
    need(own, f"{name}: no DLX_PROXY_ setting found")
    (out / f"{name}.env").write_text("".join(f"{key}={value}\n" for key, value in own.items()))


def dockerfile():
    text = re.sub(r"\\\n", " ", pathlib.Path("Dockerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    for instruction, rest in lines:
        need(instruction in known, f"Dockerfile: unknown instruction {instruction}")
        if instruction == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                need(pathlib.Path(source).exists(), f"Dockerfile: COPY of {source}, which is not there")
                kept = pathlib.Path(".dockerignore").read_text().split()
                path = pathlib.Path(source)
                need(any(f"!{part}" in kept for part in [path, *path.parents]), f".dockerignore hides {source}")
        if instruction in {"ENTRYPOINT", "CMD", "HEALTHCHECK"}:
            json.loads(rest[rest.index("["):])
    last = dict(lines)  # the last of each kind: the second stage's
    need(re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"]), "Dockerfile: USER is not a number other than root's")
    settings("Dockerfile", dict(pair.split("=", 1) for pair in shlex.split(last["ENV"])))


def compose():
    services = yaml.safe_load(pathlib.Path("docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            need("healthcheck" in services[other] or condition["condition"] != "service_healthy",
                 f"compose: {name} waits for the health of {other}, which has no check")
    settings("docker-compose.yml", services["dlx-proxy"]["environment"])


def workflows():
    targets = set(re.findall(r"^([a-z-]+):", pathlib.Path("Makefile").read_text(), re.M))
    for path in pathlib.Path(".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                # A tag can be moved, and what it then means would run with our rights.
                need(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", "a@" + 40 * "0")), f"{path}: {step.get('uses')} is not pinned")
                for words in re.findall(r"^make (.*)$", step.get("run", ""), re.M):
                    need(targets.issuperset(words.split()), f"{path}: make {words}")


for part in (dockerfile, compose, workflows):
    try:
        part()
    except Exception as error:  # a file that does not parse is one problem of several
        problems.append(f"{part.__name__}: {type(error).__name__}: {error}")
print("\n".join(problems))
sys.exit(bool(problems))
