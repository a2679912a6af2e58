"""The PROXY protocol: the broker is told where a client comes from, by whoever is trusted to say so."""

import re
import socket
import ssl
import struct
from pathlib import Path

import pika
import pytest

from lab import PATIENT, Proxy, balancer, environment, free_port, node_like
from raw import Raw

pytestmark = pytest.mark.any_broker

SAID = b"PROXY TCP4 192.0.2.7 192.0.2.1 50007 5673\r\n"
TOLD = [("192.0.2.7", "50007")]


@pytest.fixture(scope="module")
def node(via):
    """A node that takes no connection without a PROXY header. Its own, as that is for all of its listeners."""
    with node_like(via.broker, "proxy-protocol") as broker:
        broker.eval("application:set_env(rabbit, proxy_protocol, true).")
        yield broker


@pytest.fixture
def start(node, tmp_path):
    """Starts proxies in front of that node."""
    started = []

    def start(socket=None, **settings):
        proxy = Proxy(node.url, "full", tmp_path / f"{len(started)}.log", socket, **environment(upstream_proxy_protocol="v2", **settings))
        started.append(proxy)
        proxy.wait_ready()
        return proxy

    yield start
    for proxy in started:
        proxy.stop()


def client(node, address, **options):
    return Raw(node, "/", address=address, **options)


def seen(node, *columns):
    """What the broker thinks of its clients, but for the proxy's own links."""
    listed = node.ctl("-q", "list_connections", *columns, "client_properties")
    rows = [line.split("\t") for line in listed.splitlines() if "dlx-proxy" not in line and "\t" in line and columns[0] not in line]
    return [tuple(row[: len(columns)]) for row in rows]


def peers(node):
    return seen(node, "peer_host", "peer_port")


def tls_of_clients(node):
    return [row for row in seen(node, "ssl", "ssl_protocol", "ssl_cipher") if row[0] in ("true", "false")]


def own_peer(raw):
    host, port = raw.socket.getsockname()
    return [(host, str(port))]


def test_the_broker_sees_the_client_itself_or_whom_a_trusted_neighbour_names(node, start):
    proxy = start()
    with client(node, proxy.address) as raw:
        assert peers(node) == own_peer(raw)
    proxy = start(listen_proxy_protocol="10.0.0.0/8,127.0.0.1", handshake_timeout="1s")
    with client(node, proxy.address, first=SAID):
        assert peers(node) == TOLD
    # Who is trusted has to say it in time.
    for first, problem in ((b"AMQP\0\0\x09\x01AMQP", "does not begin with a PROXY header"), (b"PROXY TCP4 ", 'limit="handshake-timeout"')):
        with client(node, proxy.address, first=first, greet=False) as raw:
            assert raw.everything() == b""
        proxy.says(problem)
    assert proxy.event("header_refused") == 2
    # Who is not trusted is not believed: its bytes are no AMQP, and are answered by the header of the protocol that the broker speaks.
    proxy = start(listen_proxy_protocol="10.0.0.0/8")
    with client(node, proxy.address, first=SAID, greet=False) as raw:
        assert raw.everything() in (b"AMQP\0\0\x09\x01", b"AMQP\3\1\0\0")


@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2"])
def test_a_real_load_balancer_is_understood(node, start, tmp_path, send):
    proxy = start(listen_proxy_protocol="127.0.0.0/8")
    port = free_port()
    with balancer(tmp_path, port, proxy.address, send), client(node, ("127.0.0.1", port)) as raw:
        assert peers(node) == own_peer(raw)


@pytest.mark.parametrize(("version", "protocol"), [("TLSv1_2", "tlsv1.2"), ("TLSv1_3", "tlsv1.3")])
def test_the_broker_sees_that_a_client_came_with_tls(via, node, start, version, protocol):
    """To the proxy, or to the load balancer before it."""
    folder = Path(via.broker.folder) / "tls"
    files = {"tls_cert_file": str(folder / "server.pem"), "tls_key_file": str(folder / "server.key")}
    proxy = start(listen_tls="127.0.0.1:0", **files)
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    options = pika.SSLOptions(context, "localhost")
    with pika.BlockingConnection(pika.ConnectionParameters(*proxy.tls_address, "/", node.parameters.credentials, ssl_options=options, **PATIENT)):
        [(with_ssl, shown, cipher)] = tls_of_clients(node)
        assert (with_ssl, shown) == ("true", protocol) and re.match(r"aes_(128|256)_gcm|chacha20_poly1305", cipher)
    with client(node, proxy.address):
        assert [row[0] for row in tls_of_clients(node)] == ["false"]
    proxy = start(listen_proxy_protocol="127.0.0.1")
    texts = ((0x21, b"TLSv1.2"), (0x23, b"ECDHE-RSA-AES128-GCM-SHA256"))
    told = bytes([1, 0, 0, 0, 1]) + b"".join(struct.pack(">BH", kind, len(text)) + text for kind, text in texts)
    rest = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HHBH", 50007, 5671, 0x20, len(told)) + told
    header = b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x21, 0x11, len(rest)) + rest
    with client(node, proxy.address, first=header):
        assert peers(node) == TOLD and tls_of_clients(node) == [("true", "tlsv1.2", "aes_128_gcm")]


def test_who_comes_by_a_unix_socket_is_whom_the_proxy_speaks_for(node, start, tmp_path):
    path = tmp_path / "amqp.sock"
    proxy = start(path, vhosts="")
    with client(node, proxy.address) as raw:
        assert [host for host, _ in peers(node)] == ["127.0.0.1"]
        raw.open_channel()
    proxy.stop()
    assert not path.exists()
