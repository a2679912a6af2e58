"""The programs of README.md: how each is built, if it has to be, and called. `tests/lab/setup.sh` brought what they need."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import REPOSITORY

HERE = Path(__file__).parent
LAB = Path(os.environ.get("DLX_TEST_LAB", REPOSITORY / ".lab")) / "languages"
DEBIAN = LAB / "debian/usr"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))


def run(*command, **environment):
    """What it prints to standard output and to standard error; it has to succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=LAB, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8",
        timeout=600)
    assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}\n{done.stdout}"
    return done.stdout, done.stderr


def steps(*command, **environment):
    """The lines of a program by the names of their steps, and what it complained about."""
    output, complaints = run(*command, **environment)
    lines = [json.loads(line) for line in output.splitlines()]
    return {line.pop("step"): line for line in lines}, complaints


# === commands: cached, as they build what they return


def python(program):
    return sys.executable, HERE / program


def javascript(program):
    return "env", f"NODE_PATH={LAB / 'node_modules'}", "node", HERE / program


def php(program):
    (extensions,) = (DEBIAN / "lib/php").glob("20*")
    settings = (f"extension_dir={extensions}", "extension=amqp", f"include_path={DEBIAN / 'share/php'}")
    # -n: without the settings of this machine.
    return DEBIAN / "bin/php8.2", "-n", *(word for setting in settings for word in ("-d", setting)), HERE / program


@functools.cache
def go():
    binary = LAB / "amqp091"
    (compiler,) = DEBIAN.glob("lib/go-*/bin/go")
    # Debian's libraries are laid out as a GOPATH.
    run(compiler, "build", "-o", binary, HERE / "amqp091.go", GO111MODULE="off", GOPATH=str(DEBIAN / "share/gocode"),
        GOROOT=str(compiler.parents[1]), GOCACHE=str(LAB / "go-cache"), GOFLAGS="", CGO_ENABLED="0")
    return (binary,)


@functools.cache
def java(program="AmqpClient"):
    classes = LAB / "classes"
    (runtime,) = DEBIAN.glob("lib/jvm/java-17-openjdk-*/bin/java")
    jars = [DEBIAN / "share/java" / f"{name}.jar" for name in ("amqp-client", "slf4j-api", "slf4j-nop")]
    path = ":".join(map(str, [*jars, classes]))
    # The runtime has the compiler in it, though not the program `javac`.
    run(runtime, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-encoding", "UTF-8", "-cp", path, "-d", classes, *HERE.glob("*.java"))
    return runtime, "-Dfile.encoding=UTF-8", "-cp", path, program


@dataclass(frozen=True)
class Library:
    """A client library and the command that runs its program."""

    name: str
    command: object

    def steps(self, url, kind):
        return steps(*self.command(), url, kind)


LIBRARIES = [
    Library("pika", lambda: python("with_pika.py")),
    Library("aio-pika", lambda: python("with_aio_pika.py")),
    Library("amqplib", lambda: javascript("amqplib.js")),
    Library("lapin", lambda: (TARGET / "debug/examples/with_lapin",)),
    Library("amqp091-go", go),
    Library("amqp-client", java),
]
