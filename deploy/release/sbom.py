"""The bill of materials (CycloneDX 1.5, JSON): each crate that is linked into the program, with its version, licence and checksum.

    sbom.py TARGET... >OUT

From `cargo metadata` and Cargo.lock. Not by cargo-cyclonedx, which takes as long to compile as the proxy, and writes this machine's folders.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from datetime import datetime, timezone

TOP = pathlib.Path(__file__).resolve().parents[2]


def metadata(target):
    words = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(words, cwd=TOP, check=True, capture_output=True).stdout)


def linked(found):
    """The packages in the program, each with those that it needs itself; not those that only run at compile time or in tests."""
    macros = {package["id"] for package in found["packages"] if any("proc-macro" in part["kind"] for part in package["targets"])}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    needs, left = {}, [found["resolve"]["root"]]
    while left:
        each = left.pop()
        if each not in needs:
            normal = (dep["pkg"] for dep in nodes[each]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"]))
            needs[each] = [other for other in normal if other not in macros]
            left += needs[each]
    return needs


def main(*targets):
    lock = tomllib.loads((TOP / "Cargo.lock").read_text())["package"]
    checksums = {(each["name"], each["version"]): each.get("checksum") for each in lock}
    packages, needs = {}, {}
    for target in targets:
        found = metadata(target)
        root = found["resolve"]["root"]
        packages |= {package["id"]: package for package in found["packages"]}
        for each, others in linked(found).items():
            needs.setdefault(each, set()).update(others)

    def purl(id):
        return f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}"

    def component(id, kind="library"):
        package = packages[id]
        part = {"type": kind, "bom-ref": purl(id), "name": package["name"], "version": package["version"], "purl": purl(id)}
        if package["license"]:
            # Before SPDX had words for it, a slash was `OR`.
            part["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        if checksum := checksums[package["name"], package["version"]]:
            part["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return part

    date = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": date.isoformat().replace("+00:00", "Z"), "component": component(root, "application")},
        "components": [component(id) for id in sorted(needs, key=purl) if id != root],
        "dependencies": [{"ref": purl(id), "dependsOn": sorted(map(purl, needs[id]))} for id in sorted(needs, key=purl)],
    }, sys.stdout, indent=1)
    print()


main(*sys.argv[1:])
