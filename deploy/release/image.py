"""The container image, from static programs: an OCI layout in a tar, which `docker load` and `skopeo copy` read. The same bytes each time.

    image.py VERSION OUT ARCHITECTURE=PROGRAM...        e.g. image.py 0.4.0 dist/dlx-proxy-0.4.0-image.tar amd64=dlx-proxy

There is nothing in it but the program. How it is run is read from the Dockerfile, so that both images behave alike. Needs no engine and no root.
SOURCE_DATE_EPOCH is the date of all that is in it.
"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import shlex
import sys
import tarfile
from datetime import datetime, timezone

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
OCI = "application/vnd.oci.image"
TOP = pathlib.Path(__file__).resolve().parents[2]
NANOSECONDS = 10**9


def run_as():
    """What the last stage of the Dockerfile says, as the `config` of an image."""
    lines = (TOP / "Dockerfile").read_text().replace("\\\n", " ").rpartition("\nFROM ")[2].splitlines()
    said = dict(line.split(None, 1) for line in lines[1:] if line and not line.startswith("#"))
    options, command = said["HEALTHCHECK"].split(" CMD ")
    health = {"Test": ["CMD", *json.loads(command)]}
    for option in shlex.split(options):
        name, value = option.removeprefix("--").split("=")
        name = "".join(word.title() for word in name.split("-"))
        health[name] = int(value) if name == "Retries" else int(value.removesuffix("s")) * NANOSECONDS
    return {
        "User": said["USER"],
        "ExposedPorts": {f"{port}/tcp": {} for port in said["EXPOSE"].split()},
        "Env": ["PATH=/usr/local/bin", *shlex.split(said["ENV"])],
        "Entrypoint": json.loads(said["ENTRYPOINT"]),
        "Cmd": json.loads(said["CMD"]),
        "WorkingDir": "/",
        "Healthcheck": health,
    }


def tar(files):
    """Of (path, content or None for a folder, mode), by root, in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content, mode in files:
            entry = tarfile.TarInfo(path)
            entry.mode, entry.mtime = mode, EPOCH
            if content is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content or b""))
    return buffer.getvalue()


def main(version, out, *programs):
    blobs = {}

    def blob(media, content, **more):
        """Keeps it, and returns its descriptor."""
        content = content if isinstance(content, bytes) else json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content), **more}

    def path(descriptor):
        return "blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")

    created = datetime.fromtimestamp(EPOCH, timezone.utc).isoformat().replace("+00:00", "Z")
    labels = {f"org.opencontainers.image.{name}": value for name, value in {
        "title": "dlx-proxy", "version": version, "licenses": "Apache-2.0",
        "source": "https://github.com/dlx-proxy/dlx-proxy"}.items()}
    manifests, docker = [], []
    for architecture, program in (each.split("=", 1) for each in programs):
        folders = [(folder, None, 0o755) for folder in ("usr", "usr/local", "usr/local/bin")]
        layer = tar([*folders, ("usr/local/bin/dlx-proxy", pathlib.Path(program).read_bytes(), 0o755)])
        packed = blob(f"{OCI}.layer.v1.tar+gzip", gzip.compress(layer, 9, mtime=0))
        config = blob(f"{OCI}.config.v1+json", {
            "architecture": architecture, "os": "linux", "created": created, "config": run_as() | {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": created, "created_by": "deploy/release/image.py"}]})
        manifests.append(blob(f"{OCI}.manifest.v1+json", {
            "schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": [packed], "annotations": labels},
            platform={"architecture": architecture, "os": "linux"}))
        # For engines that know no OCI layout; the first one is the one that `docker load` names without its architecture.
        tag = f"dlx-proxy:{version}" + (f"-{architecture}" if docker else "")
        docker.append({"Config": path(config), "RepoTags": [tag], "Layers": [path(packed)]})
    index = blob(f"{OCI}.index.v1+json", {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": manifests},
                 annotations={"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"dlx-proxy:{version}"})
    files = {
        "index.json": {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [index]},
        "manifest.json": docker,
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
    }
    files = {name: json.dumps(content, sort_keys=True).encode() for name, content in files.items()}
    files |= {f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.items())}
    pathlib.Path(out).write_bytes(tar([("blobs", None, 0o755), ("blobs/sha256", None, 0o755), *((name, content, 0o644) for name, content in files.items())]))


main(*sys.argv[1:])
