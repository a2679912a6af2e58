"""The PROXY protocol: the broker is told where a client comes from, by whoever is trusted to say so."""

import re
import shutil
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pika
import pytest

from lab import PATIENT, Proxy, node_like, until
from raw import Raw

pytestmark = [pytest.mark.once, pytest.mark.proxied]

SAID = b"PROXY TCP4 192.0.2.7 192.0.2.1 50007 5673\r\n"


@pytest.fixture(scope="module")
def node(via):
    """A node that takes no connection without a PROXY header. Its own, as that is for all of its listeners."""
    with node_like(via.broker, "proxy-protocol") as broker:
        broker.eval("application:set_env(rabbit, proxy_protocol, true).")
        yield broker


@pytest.fixture
def proxies(node, tmp_path):
    """Starts proxies in front of that node."""
    started = []

    def start(**settings):
        environment = {f"DLX_PROXY_{name.upper()}": value for name, value in settings.items()}
        proxy = Proxy(node.url, "full", tmp_path / f"{len(started)}.log", **environment)
        started.append(proxy)
        proxy.wait_ready()
        return proxy

    yield start
    for proxy in started:
        proxy.stop()


def client(node, address, **options):
    return Raw(SimpleNamespace(broker=node, address=address, vhost="/"), **options)


def peers(node):
    """Where the broker thinks that its clients come from, but for the proxy's own links."""
    listed = node.ctl("-q", "list_connections", "peer_host", "peer_port", "client_properties")
    return [tuple(line.split("\t")[:2]) for line in listed.splitlines() if "dlx-proxy" not in line and "\t" in line and "peer_host" not in line]


def test_the_broker_sees_whom_a_trusted_neighbour_names(node, proxies):
    proxy = proxies(listen_proxy_protocol="10.0.0.0/8,127.0.0.1", upstream_proxy_protocol="v2")
    with client(node, proxy.address, first=SAID):
        assert peers(node) == [("192.0.2.7", "50007")]


def test_the_broker_sees_the_client_itself(node, proxies):
    proxy = proxies(upstream_proxy_protocol="v2")
    with client(node, proxy.address) as raw:
        host, port = raw.socket.getsockname()
        assert peers(node) == [(host, str(port))]


@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2"])
def test_a_real_load_balancer_is_understood(node, proxies, tmp_path, send):
    proxy = proxies(listen_proxy_protocol="127.0.0.0/8", upstream_proxy_protocol="v2")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen amqp\n  bind 127.0.0.1:{port}\n  server proxy 127.0.0.1:{proxy.address[1]} {send}\n"
    )
    balancer = subprocess.Popen([shutil.which("haproxy"), "-db", "-f", configuration])
    try:
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "haproxy")
        with client(node, ("127.0.0.1", port)) as raw:
            host, own = raw.socket.getsockname()
            assert peers(node) == [(host, str(own))]
    finally:
        balancer.kill()
        balancer.wait()


def tls_of_clients(node):
    """What the broker thinks of TLS between its clients and whoever they came to, but for the proxy's own links."""
    columns = ("ssl", "ssl_protocol", "ssl_cipher", "client_properties")
    listed = node.ctl("-q", "list_connections", *columns)
    rows = [line.split("\t") for line in listed.splitlines() if "dlx-proxy" not in line and "\t" in line]
    return [row[:3] for row in rows if row[0] in ("true", "false")]


@pytest.fixture
def certificates(via):
    if not via.broker.tls:
        pytest.skip("set DLX_TEST_TLS and DLX_TEST_DIR")
    return Path(via.broker.folder) / "tls"


def with_tls(node, certificates, address, version):
    """A client with TLS of that version."""
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    context.minimum_version = context.maximum_version = version
    login = node.parameters.credentials
    options = pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(pika.ConnectionParameters(*address, "/", login, ssl_options=options, **PATIENT))


@pytest.mark.parametrize(("version", "protocol"), [("TLSv1_2", "tlsv1.2"), ("TLSv1_3", "tlsv1.3")])
def test_the_broker_sees_that_a_client_came_with_tls(node, proxies, certificates, version, protocol):
    files = {"tls_cert_file": str(certificates / "server.pem"), "tls_key_file": str(certificates / "server.key")}
    proxy = proxies(listen_tls="127.0.0.1:0", upstream_proxy_protocol="v2", **files)
    connection = with_tls(node, certificates, proxy.tls_address, ssl.TLSVersion[version])
    [[with_ssl, shown, cipher]] = tls_of_clients(node)
    assert (with_ssl, shown) == ("true", protocol)
    assert re.match(r"aes_(128|256)_gcm|chacha20_poly1305", cipher)
    connection.close()
    with client(node, proxy.address):
        assert [row[0] for row in tls_of_clients(node)] == ["false"]


def test_the_broker_sees_that_a_client_came_to_the_load_balancer_with_tls(node, proxies):
    proxy = proxies(listen_proxy_protocol="127.0.0.1", upstream_proxy_protocol="v2")
    texts = ((0x21, b"TLSv1.2"), (0x23, b"ECDHE-RSA-AES128-GCM-SHA256"))
    told = bytes([1, 0, 0, 0, 1]) + b"".join(struct.pack(">BH", kind, len(text)) + text for kind, text in texts)
    rest = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HHBH", 50007, 5671, 0x20, len(told)) + told
    header = b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x21, 0x11, len(rest)) + rest
    with client(node, proxy.address, first=header):
        assert peers(node) == [("192.0.2.7", "50007")]
        assert tls_of_clients(node) == [["true", "tlsv1.2", "aes_128_gcm"]]


def test_who_comes_by_a_unix_socket_is_whom_the_proxy_speaks_for(node, tmp_path):
    path = tmp_path / "amqp.sock"
    settings = {"DLX_PROXY_UPSTREAM_PROXY_PROTOCOL": "v2", "DLX_PROXY_VHOSTS": ""}
    proxy = Proxy(node.url, "full", tmp_path / "unix.log", listen=path, **settings)
    try:
        proxy.wait_ready()
        with client(node, proxy.address) as raw:
            assert [host for host, _ in peers(node)] == ["127.0.0.1"]
            raw.open_channel()
    finally:
        proxy.stop()
    assert not path.exists()


def test_who_is_not_trusted_is_not_believed(node, proxies):
    proxy = proxies(listen_proxy_protocol="10.0.0.0/8", upstream_proxy_protocol="v2")
    # Its octets are the client's, and no AMQP.
    with client(node, proxy.address, first=SAID, greet=False) as raw:
        while raw.more():
            pass
        # The header of the protocol that it speaks: AMQP 1.0 since 4.0.
        assert raw.buffer in (b"AMQP\0\0\x09\x01", b"AMQP\3\1\0\0")
    with client(node, proxy.address):
        assert [host for host, _ in peers(node)] == ["127.0.0.1"]


def test_who_is_trusted_has_to_say_it_in_time(node, proxies):
    proxy = proxies(listen_proxy_protocol="127.0.0.1", upstream_proxy_protocol="v2", handshake_timeout="1s")
    for first, problem in ((b"AMQP\0\0\x09\x01AMQP", "does not begin with a PROXY header"), (b"PROXY TCP4 ", 'limit="handshake-timeout"')):
        with client(node, proxy.address, first=first, greet=False) as raw:
            while raw.more():
                pass
            assert raw.buffer == b""
        until(lambda: problem in proxy.text(), proxy.text)
    assert re.search(r'^dlx_proxy_events_total{event="header_refused"} 2$', proxy.get("/metrics")[1], re.M)
    with client(node, proxy.address, first=SAID):
        assert peers(node) == [("192.0.2.7", "50007")]
