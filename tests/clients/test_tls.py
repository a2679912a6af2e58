"""TLS on both legs, with clients that know nothing of the proxy: what works, and what somebody reads who made a mistake."""

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest

from lab import BINARY, DEADLINE, PATIENT, Proxy, until

pytestmark = [pytest.mark.proxied, pytest.mark.once]

HEADER = b"AMQP\x00\x00\x09\x01"


@dataclass
class Tls:
    """A broker with TLS, and the certificates that it knows."""

    broker: object
    folder: Path
    scratch: Path

    def file(self, name):
        return str(self.folder / name)

    def settings(self, **more):
        """For a proxy with TLS on both legs."""
        settings = {
            "upstream_ca_file": self.file("ca.pem"),
            "listen_tls": "127.0.0.1:0",
            "tls_cert_file": self.file("server.pem"),
            "tls_key_file": self.file("server.key"),
        } | more
        return {f"DLX_PROXY_{name.upper()}": value for name, value in settings.items() if value is not None}

    @contextlib.contextmanager
    def proxy(self, upstream=None, ready=True, **settings):
        log = self.scratch / f"{uuid.uuid4().hex}.log"
        proxy = Proxy(upstream or self.broker.tls, "full", log, **self.settings(**settings))
        try:
            if ready:
                proxy.wait_ready()
            yield proxy
        finally:
            proxy.stop()

    @contextlib.contextmanager
    def client(self, address, credentials=None, certificate=None):
        context = ssl.create_default_context(cafile=self.file("ca.pem"))
        if certificate:
            context.load_cert_chain(self.file(f"{certificate}.pem"), self.file(f"{certificate}.key"))
        options = pika.SSLOptions(context, "localhost")
        login = credentials or self.broker.parameters.credentials
        parameters = pika.ConnectionParameters(*address, "/", login, ssl_options=options, **PATIENT)
        connection = pika.BlockingConnection(parameters)
        yield connection
        if connection.is_open:
            connection.close()

    def certificate(self, address):
        """The serial number that is shown there."""
        context = ssl.create_default_context(cafile=self.file("ca.pem"))
        with socket.create_connection(address, DEADLINE) as plain, context.wrap_socket(plain, server_hostname="localhost") as shown:
            return shown.getpeercert()["serialNumber"]


@pytest.fixture
def tls(via, tmp_path):
    if not via.broker.tls:
        pytest.skip("set DLX_TEST_TLS and DLX_TEST_DIR")
    return Tls(via.broker, Path(via.broker.folder) / "tls", tmp_path)


def dies(connection):
    """A message is rejected and arrives where dead letters go."""
    channel = connection.channel()
    queue, dead = (f"tls-{uuid.uuid4().hex}" for _ in range(2))
    channel.queue_declare(dead, exclusive=True)
    channel.queue_declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    body = os.urandom(100_000)
    channel.basic_publish("", queue, body)
    got = until(lambda: (found := channel.basic_get(queue))[0] and found, "the message")
    channel.basic_nack(got[0].delivery_tag, requeue=False)
    letter = until(lambda: (found := channel.basic_get(dead, auto_ack=True))[0] and found, "its dead letter")
    assert letter[2] == body
    assert letter[1].headers["x-death"][0]["reason"] == "rejected"
    channel.close()


def said(proxy, words):
    until(lambda: words in proxy.text(), lambda: f"{words!r} in {proxy.text()}")


def counted(proxy, metric):
    found = re.search(rf"^{re.escape(metric)} (\S+)$", proxy.get("/metrics")[1], re.M)
    return float(found[1]) if found else 0


def test_a_message_dies_with_tls_on_both_legs(tls):
    with tls.proxy() as proxy, tls.client(proxy.tls_address) as connection:
        dies(connection)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(tls, version):
    with tls.proxy() as proxy:
        context = ssl.create_default_context(cafile=tls.file("ca.pem"))
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(proxy.tls_address, DEADLINE) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(HEADER)
            assert client.recv(1) == b"\x01"


def test_clients_show_certificates_where_they_have_to(tls):
    with tls.proxy(tls_client_auth="required", tls_client_ca_file=tls.file("ca.pem")) as proxy:
        with tls.client(proxy.tls_address, certificate="client") as connection:
            dies(connection)
        for certificate in (None, "other"):
            with pytest.raises(pika.exceptions.AMQPError), tls.client(proxy.tls_address, certificate=certificate):
                pass
        said(proxy, "`tls-client-auth` asks for a certificate")
        # A client hears of its refusal before the proxy counts it.
        failed = 'dlx_proxy_events_total{event="tls_handshake_failed"}'
        until(lambda: counted(proxy, failed) == 2, lambda: proxy.get("/metrics")[1])
    with tls.proxy(tls_client_auth="optional", tls_client_ca_file=tls.file("ca.pem")) as proxy:
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


@pytest.mark.parametrize("by_signal", [True, False])
def test_new_certificates_count_for_new_connections_only(tls, by_signal):
    shown = {name: tls.scratch / f"shown.{name}" for name in ("pem", "key")}

    def show(folder):
        for name, path in shown.items():
            shutil.copy(folder / f"server.{name}", path)

    other = tls.scratch / "other"
    subprocess.run([Path(__file__).parents[1] / "lab/certificates.sh", other], check=True)
    # Another certificate, signed by whom the clients know.
    for name in ("ca.pem", "ca.key"):
        shutil.copy(tls.folder / name, other / name)
    words = "openssl req -new -key server.key -subj /CN=new -out new.csr && openssl x509 -req -in new.csr -CA ca.pem -CAkey ca.key -days 20 -out server.pem"
    script = f"{words} -extfile <(echo subjectAltName=DNS:localhost)"
    subprocess.run(["bash", "-c", script], cwd=other, check=True, capture_output=True)
    show(tls.folder)
    with tls.proxy(tls_cert_file=str(shown["pem"]), tls_key_file=str(shown["key"])) as proxy, tls.client(proxy.tls_address) as connection:
        dies(connection)
        before = tls.certificate(proxy.tls_address)
        show(other)
        if by_signal:
            proxy.process.send_signal(signal.SIGHUP)
        until(lambda: tls.certificate(proxy.tls_address) != before, lambda: f"another certificate: {proxy.text()}")
        said(proxy, "the certificate expires soon")
        assert counted(proxy, 'dlx_proxy_certificate_expires_timestamp_seconds{setting="tls-cert-file"}') > 0
        dies(connection)
        # What is wrong changes nothing.
        shown["key"].write_text("no key")
        said(proxy, "certificates are not taken over" if not by_signal else "certificates")
        with tls.client(proxy.tls_address) as another:
            dies(another)


def test_who_comes_to_the_wrong_port_is_told_of(tls):
    with tls.proxy() as proxy:
        with socket.create_connection(proxy.tls_address, DEADLINE) as client:
            client.sendall(HEADER)
            client.settimeout(DEADLINE)
            # An alert of TLS, as RabbitMQ's own port with TLS answers.
            assert client.recv(100)[:2] == b"\x15\x03"
            assert client.recv(100) == b""
        said(proxy, "it speaks no TLS")
        assert counted(proxy, 'dlx_proxy_events_total{event="tls_handshake_failed"}') == 1
        context = ssl.create_default_context(cafile=tls.file("ca.pem"))
        with socket.create_connection(proxy.address, DEADLINE) as client, pytest.raises(OSError):
            context.wrap_socket(client, server_hostname="localhost")
        said(proxy, "TLS where none is spoken")


def test_the_broker_is_looked_at(tls):
    plain, secure = tls.broker.url, tls.broker.tls
    amqps_to_plain = plain.replace("amqp://", "amqps://")
    amqp_to_tls = secure.replace("amqps://", "amqp://").replace("localhost", "127.0.0.1")
    none = dict(upstream_ca_file=None)
    for upstream, settings, words in [
        (secure, dict(upstream_ca_file=tls.file("stranger.pem")), "UnknownIssuer: set `upstream-ca-file`"),
        (secure, dict(upstream_tls_name="elsewhere.example"), "certificate is only valid for DnsName"),
        (amqps_to_plain, {}, "does not speak TLS at this port"),
        (amqp_to_tls, none, "speaks TLS at this port"),
    ]:
        with tls.proxy(upstream, ready=False, **settings) as proxy:
            said(proxy, words)
    with tls.proxy(secure, upstream_tls_verify="false", **none) as proxy:
        said(proxy, "`upstream-tls-verify` is false")
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


def test_a_broker_whose_certificate_is_over(tls):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.file("expired.pem"), tls.file("expired.key"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        upstream = f"amqps://guest:guest@localhost:{server.getsockname()[1]}"
        with tls.proxy(upstream, ready=False) as proxy:
            server.settimeout(DEADLINE)
            for _ in range(3):
                client, _ = server.accept()
                with contextlib.suppress(OSError):
                    context.wrap_socket(client, server_side=True)
                client.close()
            said(proxy, "the certificate of localhost is not accepted: certificate expired")


def offered(client):
    """The mechanisms in `connection.start`."""
    client.sendall(HEADER)
    frame = b""
    while b"PLAIN" not in frame or not frame.endswith(b"\xce"):
        frame += client.recv(4096)
    return re.search(rb"[A-Z0-9\-]*(?: ?(?:PLAIN|AMQPLAIN|EXTERNAL|ANONYMOUS|RABBIT-CR-DEMO))+", frame[frame.index(b"PLAIN") - 40 :])[0].split()


def test_nobody_becomes_the_user_of_the_proxys_certificate(tls):
    """RabbitMQ takes the user of EXTERNAL from the certificate on its own socket: that is the proxy's."""
    external = pika.credentials.ExternalCredentials()
    _, _, _, port = re.match(r"amqps://(.*):(.*)@(.*):(\d+)", tls.broker.tls).groups()
    with tls.client(("localhost", int(port)), external, "client") as direct:
        assert direct.is_open, "the judge: who has the certificate gets in"
    shown = dict(upstream_cert_file=tls.file("client.pem"), upstream_key_file=tls.file("client.key"))
    context = ssl.create_default_context(cafile=tls.file("ca.pem"))
    for settings in ({}, shown):
        with tls.proxy(**settings) as proxy:
            with tls.client(proxy.tls_address) as connection:
                dies(connection)
            # pika refuses by itself, as EXTERNAL is not offered.
            with pytest.raises(pika.exceptions.AMQPError), tls.client(proxy.tls_address, external, "client"):
                pass
            for address, dress in [(proxy.address, lambda it: it), (proxy.tls_address, lambda it: context.wrap_socket(it, server_hostname="localhost"))]:
                with socket.create_connection(address, DEADLINE) as plain, dress(plain) as client:
                    client.settimeout(DEADLINE)
                    assert b"EXTERNAL" not in offered(client)
                    payload = b"\x00\x0a\x00\x0b" + b"\x00\x00\x00\x00" + b"\x08EXTERNAL" + b"\x00\x00\x00\x00" + b"\x05en_US"
                    client.sendall(b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce")
                    answer = client.recv(4096)
                    assert b"ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL" in answer
            said(proxy, "client refused: it chose EXTERNAL")
            if settings:
                # SASL of AMQP 1.0, which the proxy does not look into.
                with socket.create_connection(proxy.address, DEADLINE) as client:
                    client.sendall(b"AMQP\x03\x01\x00\x00")
                    client.settimeout(DEADLINE)
                    assert client.recv(100) == HEADER
                    assert client.recv(100) == b""


def test_a_certificate_that_comes_at_sighup_is_guarded_too(tls):
    """Whom a session lets log in follows from the certificate that its own connection showed."""
    settings = tls.scratch / "settings.toml"
    settings.write_text("")

    def sasl(proxy):
        """What who speaks AMQP 1.0 is answered."""
        with socket.create_connection(proxy.address, DEADLINE) as client:
            client.settimeout(DEADLINE)
            client.sendall(b"AMQP\x03\x01\x00\x00")
            return client.recv(8)

    refused = 'dlx_proxy_events_total{event="external_refused"}'
    with tls.proxy(config=str(settings)) as proxy:
        sasl(proxy)
        assert counted(proxy, refused) == 0, "without a certificate it is the broker's affair"
        settings.write_text(f"upstream-cert-file = '{tls.file('client.pem')}'\nupstream-key-file = '{tls.file('client.key')}'\n")
        proxy.process.send_signal(signal.SIGHUP)
        said(proxy, "certificates are read anew")
        assert sasl(proxy) == HEADER
        assert counted(proxy, refused) == 1
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


def test_an_expired_certificate_stops_nobody_who_does_not_look_at_it(tls):
    with tls.proxy(tls_cert_file=tls.file("expired.pem"), tls_key_file=tls.file("expired.key")) as proxy:
        said(proxy, "the certificate has expired")
        login = tls.broker.parameters.credentials
        with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters(*proxy.address, "/", login, **PATIENT))) as connection:
            dies(connection)
        with pytest.raises(ssl.SSLCertVerificationError), tls.client(proxy.tls_address):
            pass
        said(proxy, "it does not accept the certificate of `tls-cert-file`")


def test_handshakes_that_never_end_hold_nobody_up_for_long(tls):
    with tls.proxy(max_connections="20", handshake_timeout="1s") as proxy:
        with contextlib.ExitStack() as silent:
            for _ in range(40):
                silent.enter_context(socket.create_connection(proxy.tls_address, DEADLINE))
            with tls.client(proxy.tls_address) as connection:
                dies(connection)
            until(
                lambda: counted(proxy, 'dlx_proxy_events_total{event="tls_handshake_failed"}') == 40,
                lambda: proxy.get("/metrics")[1],
            )


def test_who_does_not_say_a_word_costs_the_broker_no_connection(tls):
    with contextlib.ExitStack() as ends:
        broker = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        upstream = f"amqp://127.0.0.1:{broker.getsockname()[1]}"
        proxy = ends.enter_context(tls.proxy(upstream, ready=False, upstream_ca_file=None, vhosts=""))
        for _ in range(20):
            # Without TLS, as a probe of a load balancer; and with it.
            socket.create_connection(proxy.address, DEADLINE).close()
            tls.certificate(proxy.tls_address)
        with socket.create_connection(proxy.address, DEADLINE) as client:
            client.sendall(b"AMQP\0\0\x09\x01")
            broker.settimeout(DEADLINE)
            with broker.accept()[0] as came:
                came.settimeout(DEADLINE)
                assert came.recv(8) == b"AMQP\0\0\x09\x01"
            broker.setblocking(False)
            with pytest.raises(BlockingIOError):
                broker.accept()


def test_the_admin_port_has_tls_too(tls):
    with tls.proxy(admin_tls="127.0.0.1:0") as proxy:
        until(lambda: proxy.admin_tls, "its line")
        place = "https://localhost:%d" % proxy.admin_tls[1]

        def ask(*words, **environment):
            environment = {name: text for name, text in os.environ.items() if not name.startswith("DLX_PROXY_")} | environment
            return subprocess.run([BINARY, *words], env=environment, capture_output=True, text=True, timeout=DEADLINE)

        good = ask("healthcheck", "--admin", place, "--admin-ca-file", tls.file("ca.pem"))
        assert good.returncode == 0, good.stderr
        listed = ask("dead-letters", "queues", "--admin", place, DLX_PROXY_ADMIN_CA_FILE=tls.file("ca.pem"))
        assert listed.returncode == 0, listed.stderr
        # By its settings alone, as in a container.
        settings = tls.settings(admin="", admin_tls="127.0.0.1:%d" % proxy.admin_tls[1], upstream=tls.broker.tls)
        own = ask("healthcheck", **settings)
        assert own.returncode == 0, own.stderr
        stranger = ask("healthcheck", "--admin", place, "--admin-ca-file", tls.file("stranger.pem"))
        assert stranger.returncode == 1 and "--admin-ca-file" in stranger.stderr, stranger.stderr
        named = ask("dead-letters", "queues", "--admin", place.replace("localhost", "[::1]"))
        assert named.returncode == 1, named.stderr
        wrong = ask("healthcheck", "--admin", "https://", "--admin-ca-file", tls.file("ca.pem"))
        assert wrong.returncode == 64 and "write a URL with a port" in wrong.stderr, wrong.stderr


def test_retries_are_listed_with_tls(tls):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DLX_PROXY_")}
    words = ["retries", "list", "--delay", "1000", "--upstream", tls.broker.tls]
    for ca, code in [("ca.pem", 0), ("stranger.pem", 1)]:
        environment["DLX_PROXY_UPSTREAM_CA_FILE"] = tls.file(ca)
        done = subprocess.run([BINARY, *words], env=environment, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == code, done.stderr
    assert "UnknownIssuer" in done.stderr
