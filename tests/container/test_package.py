"""The Debian package, under a real systemd: installed, used, upgraded, removed."""
import pytest

from engine import TOP, docker, inside, until

HERE = "/run/test"  # of the engine's file system, in memory


# The same package with a later version.
LATER = """cd /build && dpkg-deb --raw-extract dlx-proxy_*.deb later && sed -i 's/^Version: .*/Version: 99.0/' later/DEBIAN/control &&
dpkg-deb -Zgzip -z1 --root-owner-group --build later dlx-proxy_99.0.deb"""


@pytest.fixture(scope="module")
def packages(image):
    """Two of them: with the version of the program, and with a later one. The program is the one of the image."""
    inside("rm", "-rf", HERE)
    inside("mkdir", "-p", f"{HERE}/build")
    created = docker("create", image)
    docker("cp", f"{created}:/usr/local/bin/dlx-proxy", f"{HERE}/build/dlx-proxy")
    docker("rm", created)
    builder = ["run", "--rm", "--volume", f"{TOP}:/repository:ro", "--volume", f"{HERE}/build:/build", "rust:1-bookworm"]
    first = docker(*builder, "/repository/deploy/debian/build.sh", "/build/dlx-proxy", "/build")
    docker(*builder, "sh", "-c", LATER)
    return first.rsplit("/", 1)[1], "dlx-proxy_99.0.deb"


@pytest.fixture(scope="module")
def machine(packages):
    """Runs a program on a machine with systemd, beside a broker."""
    docker("network", "create", "package")
    docker("run", "--detach", "--name", "broker", "--network", "package", "--hostname", "broker", "rabbitmq:4-management")
    docker("run", "--detach", "--name", "machine", "--network", "package", "--privileged", "--tmpfs", "/run", "--tmpfs", "/tmp",
           "--volume", f"{HERE}/build:/packages:ro", "dlx-test/systemd")

    def run(*words, check=True, data=None):
        return inside("docker", "exec", "--interactive", "machine", *words, check=check, data=data)

    until(60, lambda: run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"), "systemd does not start")
    yield run
    docker("rm", "--force", "--volumes", "broker", "machine")
    docker("network", "rm", "package")


def show(machine, name):
    return machine("systemctl", "show", "--property", name, "--value", "dlx-proxy").stdout.strip()


def journal(machine):
    return machine("journalctl", "--unit", "dlx-proxy", "--output", "cat").stdout


def settings(machine, *lines):
    machine("sh", "-c", "cat >/etc/dlx-proxy/environment", data="".join(f"{line}\n" for line in (UPSTREAM, *lines)))


def drop_in(machine, *lines):
    """Changes the unit as an administrator does; without lines, back."""
    folder = "/run/systemd/system/dlx-proxy.service.d"
    machine("sh", "-c", f"mkdir -p {folder} && cat >{folder}/test.conf && systemctl daemon-reload", data="\n".join(("[Service]", *lines)))


UPSTREAM = "DLX_PROXY_UPSTREAM=amqp://guest:guest@broker:5672"


@pytest.fixture(scope="module")
def installed(machine, packages):
    machine("dpkg", "--install", f"/packages/{packages[0]}")
    return machine


def three_die(machine):
    until(60, lambda: machine("dlx-proxy", "demo", check=False).returncode == 0, "no dead letters")


def test_it_is_started_by_being_installed(installed):
    assert show(installed, "ActiveState") == "active"
    assert show(installed, "Type") == "notify"
    pid = show(installed, "MainPID")
    found = installed("cat", f"/proc/{pid}/status").stdout
    rights = dict(line.split(":\t", 1) for line in found.splitlines() if ":\t" in line)
    assert int(rights["CapEff"], 16) == int(rights["CapBnd"], 16) == 0
    assert installed("stat", "--format", "%U", f"/proc/{pid}").stdout.strip() == "dlx-proxy"
    assert installed("systemctl", "is-enabled", "dlx-proxy").stdout.strip() == "enabled"


def test_its_secrets_are_not_for_everybody(installed):
    modes = installed("sh", "-c", "stat --format '%a %U %G %n' /etc/dlx-proxy/*").stdout.splitlines()
    assert modes == ["640 root dlx-proxy /etc/dlx-proxy/dlx-proxy.toml", "600 root root /etc/dlx-proxy/environment"]


def test_it_brings_manual_pages_and_completions(installed):
    files = installed("dpkg", "--listfiles", "dlx-proxy").stdout.split()
    for file in ("man/man1/dlx-proxy.1.gz", "man/man1/dlx-proxy-retries-release.1.gz", "bash-completion/completions/dlx-proxy"):
        assert f"/usr/share/{file}" in files


def test_messages_die_through_it(installed):
    settings(installed)
    installed("systemctl", "restart", "dlx-proxy")
    three_die(installed)


def test_a_bad_setting_makes_start_fail(installed):
    settings(installed, "DLX_PROXY_MODE=nonsense")
    try:
        assert installed("systemctl", "restart", "dlx-proxy", check=False).returncode != 0
        assert show(installed, "ActiveState") == "failed"
        assert "nonsense" in journal(installed)
    finally:
        settings(installed)
    installed("systemctl", "start", "dlx-proxy")


def test_a_taken_port_makes_start_fail_until_it_is_free(installed):
    address = "127.0.0.1:15674"
    installed("systemd-run", "--unit", "taken", "systemd-socket-activate", "--listen", address, "/bin/cat")
    settings(installed, f"DLX_PROXY_ADMIN={address}")
    try:
        until(10, lambda: installed("systemctl", "restart", "dlx-proxy", check=False).returncode != 0, "it starts where somebody else listens")
        assert address in journal(installed)
        # More often than systemd tries by default.
        until(30, lambda: int(show(installed, "NRestarts")) > 6, "it is given up")
        installed("systemctl", "stop", "taken")
        until(10, lambda: show(installed, "ActiveState") == "active", "it does not come up by itself")
    finally:
        settings(installed)
    installed("systemctl", "restart", "dlx-proxy")


def test_reload_reads_the_file_again(installed):
    installed("sh", "-c", "echo 'max-connections = 77' >>/etc/dlx-proxy/dlx-proxy.toml")
    pid = show(installed, "MainPID")
    installed("systemctl", "reload", "dlx-proxy")
    until(10, lambda: "max-connections" in journal(installed), "nothing is reloaded")
    assert show(installed, "MainPID") == pid
    until(10, lambda: show(installed, "ActiveState") == "active", "it stays reloading")


def test_a_proxy_that_stands_still_is_started_again(installed):
    drop_in(installed, "WatchdogSec=2s")
    installed("systemctl", "restart", "dlx-proxy")
    installed("sh", "-c", f"kill -STOP {show(installed, 'MainPID')}")
    until(30, lambda: show(installed, "NRestarts") == "1", "nobody notices")
    until(10, lambda: show(installed, "ActiveState") == "active", "it does not come back")
    drop_in(installed)


def test_a_limit_that_was_cut_is_said(installed):
    drop_in(installed, "LimitNOFILE=200")
    installed("systemctl", "restart", "dlx-proxy")
    assert "clients=4" in journal(installed)
    drop_in(installed)
    installed("systemctl", "restart", "dlx-proxy")


def test_clients_wait_in_the_socket_while_it_restarts(installed):
    installed("systemctl", "stop", "dlx-proxy")
    installed("systemctl", "start", "dlx-proxy.socket")
    assert show(installed, "ActiveState") == "inactive"
    # The first client starts it, and is served.
    hello = r"exec 3<>/dev/tcp/127.0.0.1/5673 && printf 'AMQP\0\0\11\1' >&3 && IFS= read -r -t 60 -n 1 byte <&3 && [[ $byte == $'\1' ]]"
    installed("bash", "-c", hello)
    assert show(installed, "ActiveState") == "active"
    # While it restarts nobody is refused.
    knock = "systemctl restart --no-block dlx-proxy; for _ in $(seq 200); do exec 3<>/dev/tcp/127.0.0.1/5673 || exit 1; exec 3>&-; sleep 0.01; done"
    installed("bash", "-c", knock)
    installed("systemctl", "stop", "dlx-proxy.socket", "dlx-proxy")
    installed("systemctl", "start", "dlx-proxy")


def test_an_upgrade_keeps_the_settings_and_restarts(installed, packages):
    pid = show(installed, "MainPID")
    installed("dpkg", "--install", f"/packages/{packages[1]}")
    assert show(installed, "ActiveState") == "active"
    assert show(installed, "MainPID") != pid
    assert UPSTREAM in installed("cat", "/etc/dlx-proxy/environment").stdout
    assert "max-connections = 77" in installed("cat", "/etc/dlx-proxy/dlx-proxy.toml").stdout
    assert installed("stat", "--format", "%a %G", "/etc/dlx-proxy/dlx-proxy.toml").stdout.split() == ["640", "dlx-proxy"]
    three_die(installed)


def test_what_is_removed_is_gone(installed):
    installed("dpkg", "--remove", "dlx-proxy")
    assert show(installed, "ActiveState") == "inactive"
    assert UPSTREAM in installed("cat", "/etc/dlx-proxy/environment").stdout
    installed("dpkg", "--purge", "dlx-proxy")
    left = "ls -d /etc/dlx-proxy /usr/bin/dlx-proxy /etc/systemd/system/*/dlx-proxy* /lib/systemd/system/dlx-proxy* 2>/dev/null"
    assert installed("sh", "-c", left, check=False).stdout == ""
