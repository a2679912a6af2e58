"""Ready means working: while the broker refuses the proxy's user, `/readyz` answers 503 with the broker's words and what to do, the log has an error,
and when that is done the proxy is ready by itself. Whoever wants it served all the same sets `ready-when-refused`."""

import subprocess

import pika
import pytest

from lab import BINARY, DEADLINE, Proxy, until

pytestmark = [pytest.mark.once, pytest.mark.proxied, pytest.mark.takeover]

VHOST, USER, PREFIX = "refused", "refused", "refused"
RIGHT = (f"^{PREFIX}", ".*", f"^{PREFIX}")
RETRIED = 30
EVE = "refused-eve"
MARK = f"{PREFIX}.user"


class Refused:
    """A vhost that is in `vhosts`, and a proxy with a user of its own."""

    def __init__(self, via, log):
        self.broker, self.log, self.proxy = via.broker, log, None
        self.make("secret", RIGHT)

    def make(self, password, *rights):
        mine = [(USER, VHOST, *right) for right in rights]
        self.broker.make([VHOST], [(USER, password)], mine + [(self.broker.user, VHOST, ".*", ".*", ".*")])

    def password(self, password):
        self.broker.eval(f'rabbit_auth_backend_internal:change_password(<<"{USER}">>, <<"{password}">>, <<"tests">>).')

    def start(self, **settings):
        self.proxy = self.another(USER, self.log, **settings)

    def another(self, user, log, **settings):
        upstream = f"amqp://{user}:secret@%s:%d" % self.broker.address
        settings = {"DLX_PROXY_VHOSTS": VHOST, "DLX_PROXY_PREFIX": PREFIX} | settings
        return Proxy(upstream, "full", log, **{"DLX_PROXY_READY_WHEN_REFUSED": "false"} | settings)

    def is_refused(self, *words):
        """Not ready, with these words in the answer, and an error in the log."""

        def is_said():
            status, said = self.proxy.get("/readyz")
            errors = [line for line in self.proxy.text().splitlines() if " ERROR " in line]
            return status == 503 and all(word in said and any(word in line for line in errors) for word in words)

        until(is_said, lambda: f"{words} in {self.proxy.get('/readyz')[1]} and in {self.proxy.text()}")
        assert " INFO ready" not in self.proxy.text() and "dlx_proxy::readiness: ready" not in self.proxy.text()

    def works(self):
        until(self.proxy.is_ready, lambda: self.proxy.get("/readyz")[1] + self.proxy.text(), deadline=RETRIED)

    def close(self):
        if self.proxy:
            self.proxy.stop()
        self.broker.unmake([VHOST], [USER, EVE])


@pytest.fixture
def refused(via, tmp_path):
    refused = Refused(via, tmp_path / "log")
    yield refused
    refused.close()


def test_a_wrong_password(refused):
    refused.password("another")
    refused.start()
    refused.is_refused("Login was refused", "authenticate_user")
    refused.password("secret")
    refused.works()


def test_no_rights_in_the_vhost(refused):
    refused.make("secret")
    refused.start()
    refused.is_refused(f"access to vhost '{VHOST}' refused for user '{USER}'", f"set_permissions -p {VHOST} {USER} '^{PREFIX}' '.*' '^{PREFIX}'")
    refused.broker.permit(VHOST, USER, *RIGHT)
    refused.works()


@pytest.mark.parametrize("rights", [("^$", ".*", ".*"), (f"^{PREFIX}", "^$", f"^{PREFIX}"), (f"^{PREFIX}", ".*", "^$")], ids=["configure", "write", "read"])
@pytest.mark.parametrize("begun", ["new", "existing"])
def test_a_permission_is_missing(refused, rights, begun):
    if begun == "existing":
        # What is there may be used without the right to make it: what is missing then shows later.
        refused.start()
        refused.works()
        refused.proxy.stop()
    refused.broker.permit(VHOST, USER, *rights)
    refused.start()
    if begun == "existing" and rights[0] == "^$":
        # Whoever made the objects need not be the proxy.
        return refused.works()
    refused.is_refused("refused for user", f"set_permissions -p {VHOST} {USER} '^{PREFIX}' '.*' '^{PREFIX}'")
    refused.broker.permit(VHOST, USER, *RIGHT)
    refused.works()


def test_who_wants_it_served_all_the_same(refused):
    refused.password("another")
    refused.start(DLX_PROXY_READY_WHEN_REFUSED="true")
    refused.works()
    until(lambda: "its queues stay native" in refused.proxy.text(), refused.proxy.text)
    assert " ERROR " not in refused.proxy.text()


@pytest.fixture
def eve(refused):
    """Another user with all that a proxy needs."""
    rights = [(user, VHOST, *RIGHT) for user in (USER, EVE)] + [(refused.broker.user, VHOST, ".*", ".*", ".*")]
    refused.broker.make([VHOST], [(USER, "secret"), (EVE, "secret")], rights)
    return EVE


def doctor(refused, user):
    upstream = f"amqp://{user}:secret@%s:%d" % refused.broker.address
    environment = {"DLX_PROXY_VHOSTS": VHOST, "DLX_PROXY_PREFIX": PREFIX, "DLX_PROXY_ADMIN": "127.0.0.1:1"}
    done = subprocess.run([BINARY, "doctor", "--upstream", upstream], env=environment, capture_output=True, text=True, timeout=DEADLINE)
    return done.stdout


def test_a_second_proxy_with_another_user(refused, eve, tmp_path):
    refused.start()
    refused.works()
    # The same user again is none of it.
    same = refused.another(USER, tmp_path / "same.log")
    other = refused.another(eve, tmp_path / "other.log")
    try:
        until(same.is_ready, lambda: same.get("/readyz")[1])
        words = f"proxies with another user, {USER}, work in vhost {VHOST}"
        until(lambda: words in other.get("/readyz")[1], lambda: other.get("/readyz")[1] + other.text())
        assert f"proxies with another user work in this vhost" in other.text() and " INFO ready" not in other.text()
        assert f'dlx_proxy_other_user{{vhost="{VHOST}"}} 1' in other.get("/metrics")[1]
        assert refused.proxy.is_ready() and f'dlx_proxy_other_user{{vhost="{VHOST}"}} 0' in refused.proxy.get("/metrics")[1]
        assert f"Proxies with another user, {USER}" in doctor(refused, eve)
        assert "another user" not in doctor(refused, USER)
        # When the first ones are gone, their mark goes; here by hand.
        for proxy in (refused.proxy, same):
            proxy.stop()
        assert MARK in refused.broker.queues(VHOST)
        with pika.BlockingConnection(pika.ConnectionParameters(*refused.broker.address, VHOST, refused.broker.parameters.credentials)) as connection:
            connection.channel().queue_delete(MARK)
        until(other.is_ready, lambda: other.get("/readyz")[1] + other.text(), deadline=RETRIED + 10)
        assert f"Proxies with another user, {eve}" in doctor(refused, USER)
    finally:
        other.stop()
        if same.process.poll() is None:
            same.stop()
