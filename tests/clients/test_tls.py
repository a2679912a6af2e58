"""TLS on both legs, with clients that know nothing of the proxy: what works, and what somebody reads who made a mistake."""

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest

from lab import BINARY, DEADLINE, PATIENT, Proxy, environment, inherited, until
from scene import one_of

pytestmark = pytest.mark.any_broker

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
        files = {"upstream_ca_file": "ca.pem", "tls_cert_file": "server.pem", "tls_key_file": "server.key"}
        settings = {"listen_tls": "127.0.0.1:0"} | {name: self.file(file) for name, file in files.items()} | more
        return environment(**{name: value for name, value in settings.items() if value is not None})

    @property
    def context(self):
        return ssl.create_default_context(cafile=self.file("ca.pem"))

    @contextlib.contextmanager
    def socket(self, address, context=None):
        """With TLS, if there is a context."""
        with socket.create_connection(address, DEADLINE) as plain:
            if context is None:
                yield plain
            else:
                with context.wrap_socket(plain, server_hostname="localhost") as client:
                    yield client

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
        context = self.context
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
        with self.socket(address, self.context) as shown:
            return shown.getpeercert()["serialNumber"]


@pytest.fixture
def tls(via, tmp_path):
    if not via.broker.tls:
        pytest.skip("set DLX_TEST_TLS and DLX_TEST_DIR")
    return Tls(via.broker, Path(via.broker.folder) / "tls", tmp_path)


def dies(connection):
    """A message is rejected and arrives where dead letters go."""
    channel, body = connection.channel(), bytes(100_000)
    queue, dead = (f"tls-{uuid.uuid4().hex}" for _ in range(2))
    channel.queue_declare(dead, exclusive=True)
    channel.queue_declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", queue, body)
    channel.basic_nack(one_of(channel, queue).method.delivery_tag, requeue=False)
    letter = one_of(channel, dead, auto_ack=True)
    assert letter.body == body and letter.properties.headers["x-death"][0]["reason"] == "rejected"
    channel.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(tls, version):
    with tls.proxy() as proxy:
        context = tls.context
        context.minimum_version = context.maximum_version = version
        with tls.socket(proxy.tls_address, context) as client:
            client.sendall(HEADER)
            assert client.recv(1) == b"\x01"
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


def test_clients_show_certificates_where_they_have_to(tls):
    with tls.proxy(tls_client_auth="required", tls_client_ca_file=tls.file("ca.pem")) as proxy:
        with tls.client(proxy.tls_address, certificate="client") as connection:
            dies(connection)
        for certificate in (None, "other"):
            with pytest.raises(pika.exceptions.AMQPError), tls.client(proxy.tls_address, certificate=certificate):
                pass
        proxy.says("`tls-client-auth` asks for a certificate")
        # A client hears of its refusal before the proxy counts it.
        until(lambda: proxy.event("tls_handshake_failed") == 2, lambda: proxy.get("/metrics")[1])
    with tls.proxy(tls_client_auth="optional", tls_client_ca_file=tls.file("ca.pem")) as proxy, tls.client(proxy.tls_address) as connection:
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
        proxy.says("the certificate expires soon")
        assert proxy.metric("dlx_proxy_certificate_expires_timestamp_seconds", setting="tls-cert-file") > 0
        dies(connection)
        # What is wrong changes nothing.
        shown["key"].write_text("no key")
        proxy.says("certificates are not taken over" if not by_signal else "certificates")
        with tls.client(proxy.tls_address) as another:
            dies(another)


def test_who_comes_to_the_wrong_port_is_told_of(tls):
    with tls.proxy() as proxy:
        with tls.socket(proxy.tls_address) as client:
            client.sendall(HEADER)
            # An alert of TLS, as RabbitMQ's own port with TLS answers.
            assert client.recv(100)[:2] == b"\x15\x03"
            assert client.recv(100) == b""
        proxy.says("it speaks no TLS")
        assert proxy.event("tls_handshake_failed") == 1
        with pytest.raises(OSError), tls.socket(proxy.address, tls.context):
            pass
        proxy.says("TLS where none is spoken")


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
            proxy.says(words)
    with tls.proxy(secure, upstream_tls_verify="false", **none) as proxy:
        proxy.says("`upstream-tls-verify` is false")
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


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
    for settings in ({}, shown):
        with tls.proxy(**settings) as proxy:
            with tls.client(proxy.tls_address) as connection:
                dies(connection)
            # pika refuses by itself, as EXTERNAL is not offered.
            with pytest.raises(pika.exceptions.AMQPError), tls.client(proxy.tls_address, external, "client"):
                pass
            for address, context in (proxy.address, None), (proxy.tls_address, tls.context):
                with tls.socket(address, context) as client:
                    assert b"EXTERNAL" not in offered(client)
                    payload = b"\x00\x0a\x00\x0b" + b"\x00\x00\x00\x00" + b"\x08EXTERNAL" + b"\x00\x00\x00\x00" + b"\x05en_US"
                    client.sendall(b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce")
                    answer = client.recv(4096)
                    assert b"ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL" in answer
            proxy.says("client refused: it chose EXTERNAL")


def test_a_certificate_that_comes_at_sighup_is_guarded_too(tls):
    """Whom a session lets log in follows from the certificate that its own connection showed. The proxy does not look into SASL of AMQP 1.0."""
    settings = tls.scratch / "settings.toml"
    settings.write_text("")

    def sasl(proxy):
        """What who speaks AMQP 1.0 is answered."""
        with tls.socket(proxy.address) as client:
            client.sendall(b"AMQP\x03\x01\x00\x00")
            return client.recv(8)

    with tls.proxy(config=str(settings)) as proxy:
        sasl(proxy)
        assert proxy.event("external_refused") == 0, "without a certificate it is the broker's affair"
        settings.write_text(f"upstream-cert-file = '{tls.file('client.pem')}'\nupstream-key-file = '{tls.file('client.key')}'\n")
        proxy.process.send_signal(signal.SIGHUP)
        proxy.says("certificates are read anew")
        assert sasl(proxy) == HEADER
        assert proxy.event("external_refused") == 1
        with tls.client(proxy.tls_address) as connection:
            dies(connection)


def test_an_expired_certificate_stops_nobody_who_does_not_look_at_it(tls):
    with tls.proxy(tls_cert_file=tls.file("expired.pem"), tls_key_file=tls.file("expired.key")) as proxy:
        proxy.says("the certificate has expired")
        login = tls.broker.parameters.credentials
        with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters(*proxy.address, "/", login, **PATIENT))) as connection:
            dies(connection)
        with pytest.raises(ssl.SSLCertVerificationError), tls.client(proxy.tls_address):
            pass
        proxy.says("it does not accept the certificate of `tls-cert-file`")


def test_handshakes_that_never_end_hold_nobody_up_for_long(tls):
    with tls.proxy(max_connections="20", handshake_timeout="1s") as proxy:
        with contextlib.ExitStack() as silent:
            for _ in range(40):
                silent.enter_context(socket.create_connection(proxy.tls_address, DEADLINE))
            with tls.client(proxy.tls_address) as connection:
                dies(connection)
            until(lambda: proxy.event("tls_handshake_failed") == 40, lambda: proxy.get("/metrics")[1])


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


def test_the_admin_port_and_the_commands_have_tls_too(tls):
    with tls.proxy(admin_tls="127.0.0.1:0") as proxy:
        place = "https://localhost:%d" % until(lambda: proxy.admin_tls, "its line")[1]
        ca, stranger = tls.file("ca.pem"), tls.file("stranger.pem")
        own = tls.settings(admin="", admin_tls=place.replace("https://localhost", "127.0.0.1"), upstream=tls.broker.tls)
        upstream = ("retries", "list", "--delay", "1000", "--upstream", tls.broker.tls)
        for words, settings, code, said in (
            (("healthcheck", "--admin", place, "--admin-ca-file", ca), {}, 0, ""),
            (("dead-letters", "queues", "--url", place), environment(admin_ca_file=ca), 0, ""),
            (("healthcheck",), own, 0, ""),  # by its settings alone, as in a container
            (("healthcheck", "--admin", place, "--admin-ca-file", stranger), {}, 1, "--admin-ca-file"),
            (("dead-letters", "queues", "--url", place.replace("localhost", "[::1]")), {}, 1, ""),
            (("healthcheck", "--admin", "https://", "--admin-ca-file", ca), {}, 64, "write a URL with a port"),
            (upstream, environment(upstream_ca_file=ca), 0, ""),
            (upstream, environment(upstream_ca_file=stranger), 1, "UnknownIssuer"),
        ):
            done = subprocess.run([BINARY, *words], env=inherited() | settings, capture_output=True, text=True, timeout=DEADLINE)
            assert done.returncode == code and said in done.stderr, (words, done.stderr)


def test_a_second_thread_takes_sessions_of_a_busy_one(tls):
    """On their connections all goes on, in order."""
    with tls.proxy(worker_threads="2") as proxy, ThreadPoolExecutor() as pool:
        ready, enough = threading.Barrier(4, timeout=DEADLINE), threading.Event()
        pumps = [pool.submit(pumped, tls, proxy, ready, enough) for _ in range(4)]
        # It yields to all others, so its thread is never done with what there is to do.
        for task in tasks(proxy):
            os.setpriority(os.PRIO_PROCESS, int(task.name), 19)
        try:
            until(lambda: used(proxy, "sessions-1") > 0.1, lambda: f"work for the second thread: {[pump.exception(0) for pump in pumps if pump.done()]}")
        finally:
            enough.set()
        assert all(pump.result() > 0 for pump in pumps)


def pumped(tls, proxy, ready, enough):
    """As fast as possible, until it is enough: how many messages came back."""
    with tls.client(proxy.tls_address) as connection:
        channel, body = connection.channel(), bytes(200_000)
        queue = channel.queue_declare("", exclusive=True).method.queue
        # All are there before the first thread has anything to do.
        ready.wait()
        sent = came = 0
        while not enough.is_set() or came < sent:
            if sent < came + 10 and not enough.is_set():
                channel.basic_publish("", queue, body, pika.BasicProperties(message_id=str(sent)))
                sent += 1
            _, properties, content = channel.basic_get(queue, auto_ack=True)
            if content is not None:
                assert (properties.message_id, content) == (str(came), body)
                came += 1
    return came


def tasks(proxy):
    return Path(f"/proc/{proxy.process.pid}/task").iterdir()


def used(proxy, thread):
    """Seconds of processor time."""
    (stat,) = [(task / "stat").read_text() for task in tasks(proxy) if (task / "comm").read_text().strip() == thread]
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
