"""What `make release` has built, in dist/: it starts where people will start it, and is what it says."""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest

import lab
from lab import REPOSITORY, Proxy, brokers, until

DIST = REPOSITORY / "dist"
LAB = Path(os.environ.get("DLX_TEST_LAB", REPOSITORY / ".lab")).resolve()
VERSION = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
ARCHITECTURES = [each for each in ("amd64", "arm64") if (DIST / f"dlx-proxy_{VERSION}_{each}.deb").exists()]


def run(*words, check=True, **how):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, **how)
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session", params=ARCHITECTURES)
def unpacked(request, tmp_path_factory):
    """The archive's folder, and its architecture."""
    name = f"dlx-proxy-{VERSION}-linux-{request.param}"
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(DIST / f"{name}.tar.gz") as archive:
        archive.extractall(folder)
    return folder / name, request.param


@pytest.fixture(scope="session")
def emulator():
    """Runs programs of the other architecture."""
    root = run(REPOSITORY / "tests/lab/debian-root.sh", "bookworm/qemu", "qemu-user-static", "libc6").strip()
    return {"arm64": [f"{root}/usr/bin/qemu-aarch64-static"], "amd64": [f"{root}/usr/bin/qemu-x86_64-static"]} | {HERE: []}


def test_checksums_fit_and_nothing_is_left_out():
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
    summed = {line.split("  ", 1)[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
    assert {file.name for file in DIST.iterdir()} - summed == {"SHA256SUMS", "NOTES.md"}


def test_the_program_is_static_and_starts(unpacked, emulator):
    folder, architecture = unpacked
    program = folder / "dlx-proxy"
    assert "NEEDED" not in run("readelf", "--dynamic", program) and "INTERP" not in run("readelf", "--program-headers", program)
    for words, said in ((["--version"], f"dlx-proxy {VERSION}\n"), (["config", "check"], "listen")):
        assert said in run(*emulator[architecture], program, *words, env={})
    assert (folder / "man/dlx-proxy.1").exists() and (folder / "completions/dlx-proxy.bash").exists()
    for path in (REPOSITORY, Path.home()):
        assert str(path).encode() not in program.read_bytes(), "a path of the machine that built it"


def crates_in(program, folder):
    """What cargo-auditable has written into the program: the crates that are linked into it, and those of its macros."""
    run("objcopy", "--dump-section", f".dep-v0={folder}/deps", program, folder / "copy")
    found = json.loads(zlib.decompress((folder / "deps").read_bytes()))["packages"]
    return {(each["name"], each["version"]) for each in found if each.get("kind", "runtime") == "runtime"}


def test_the_bill_of_materials_is_that_of_the_program(unpacked, tmp_path):
    folder, architecture = unpacked
    if architecture != HERE:
        pytest.skip("objcopy is for this architecture")
    bill = json.loads((DIST / f"dlx-proxy-{VERSION}.cdx.json").read_text())
    parts = [bill["metadata"]["component"], *bill["components"]]
    named = {(part["name"], part["version"]) for part in parts}
    assert named <= (known := crates_in(folder / "dlx-proxy", tmp_path))
    macros = {name for name, _ in known - named}
    assert "syn" in macros and not macros & {"ring", "rustls", "tokio"}, "the rest runs at compile time only"
    assert all("licenses" in part for part in parts)
    ours = ("dlx-proxy", "dlx-core", "dlx-amqp")
    assert all("hashes" in part for part in parts if part["name"] not in ours)


# === where it runs

FIXED = "DLX_PROXY_PARKED_RETRY"
"""Only a program built for tests takes it."""
SYSTEMS = {"debian-12": "bookworm", "ubuntu-24.04": "noble"}


@pytest.fixture(params=["here", "scratch", *SYSTEMS])
def start(request, unpacked, tmp_path, monkeypatch):
    """A program that runs the one in the archive: on this machine, in an empty folder, on a fresh system with the package installed."""
    folder, architecture = unpacked
    if architecture != HERE:
        pytest.skip("a whole run is for this architecture")
    root, words = tmp_path / "root", []
    if request.param != "here":
        if os.geteuid() != 0:
            pytest.skip("chroot needs root")
        words, inside = ["chroot", str(root)], "/dlx-proxy"
    root.mkdir()
    if suite := SYSTEMS.get(request.param):
        system = LAB / f"container/roots/release-{suite}"
        if not system.exists():
            run(REPOSITORY / "tests/lab/container-root.sh", suite, system, "systemd", "init-system-helpers")
        run("cp", "--archive", "--reflink=auto", f"{system}/.", root)
        run("cp", DIST / f"dlx-proxy_{VERSION}_{HERE}.deb", root / "package.deb")
        run("chroot", root, "dpkg", "--install", "package.deb", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        inside = "/usr/bin/dlx-proxy"
    elif request.param == "scratch":
        (root / "dlx-proxy").write_bytes((folder / "dlx-proxy").read_bytes())
        (root / "dlx-proxy").chmod(0o755)
    else:
        inside = str(folder / "dlx-proxy")
    # Engines write it into each container.
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    wrapper = tmp_path / "dlx-proxy"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(["env", "-u", FIXED, *words, inside])} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(lab, "BINARY", str(wrapper))
    return wrapper


def test_dead_letters_go_through_it(start, tmp_path):
    assert run(start, "--version") == f"dlx-proxy {VERSION}\n"
    assert "listen" in run(start, "config", "check")
    broker = brokers()[-1]
    proxy = Proxy(broker.url, "full", tmp_path / "log")
    try:
        until(lambda: proxy.get("/readyz")[0] == 200, proxy.text)
        # By name: static programs often fail at that.
        url = f"amqp://guest:guest@localhost:{proxy.address[1]}"
        assert run(start, "demo", "--url", url).count("\n") >= 4
    finally:
        proxy.stop()


# === image and chart


def test_the_image_is_small_and_has_that_program(tmp_path):
    with tarfile.open(DIST / f"dlx-proxy-{VERSION}-image.tar") as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}
    blobs = {name.rsplit("/", 1)[1]: content for name, content in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())

    def blob(descriptor):
        content = blobs[descriptor["digest"].removeprefix("sha256:")]
        assert len(content) == descriptor["size"]
        return content

    (index,) = json.loads(files["index.json"])["manifests"]
    manifests = json.loads(blob(index))["manifests"]
    assert [each["platform"]["architecture"] for each in manifests] == ARCHITECTURES
    for each in manifests:
        manifest = json.loads(blob(each))
        config, (layer,) = json.loads(blob(manifest["config"])), manifest["layers"]
        layer = gzip.decompress(blob(layer))
        assert len(layer) <= 12e6, "as it is unpacked"
        assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
        assert config["config"]["User"] == "10001:10001" and config["config"]["Healthcheck"]["Interval"] == 5 * 10**9
        with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
            program = inner.extractfile("usr/local/bin/dlx-proxy").read()
            assert inner.getmember("usr/local/bin/dlx-proxy").mode == 0o755
        name = f"dlx-proxy-{VERSION}-linux-{each['platform']['architecture']}"
        with tarfile.open(DIST / f"{name}.tar.gz") as archive:
            assert archive.extractfile(f"{name}/dlx-proxy").read() == program


def test_the_chart_renders():
    assert "kind: Deployment" in run("helm", "template", "x", DIST / f"dlx-proxy-{VERSION}.tgz", "--kube-version", "1.29.0")
