"""Proxies in front of one broker: one for each fault, each with a vhost of its own, whose name is the proxy's too."""

import os
import shutil
import urllib.parse
from pathlib import Path

import pika

from cable import Cable
from lab import PATIENT, Proxy, until
from muting import Muting

RETRIES = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 100}


def management(broker):
    """Its address and its user."""
    urls = dict(pair.split("=", 1) for pair in os.environ["DLX_TEST_MANAGEMENT"].split(","))
    url = urllib.parse.urlsplit(urls[broker.version])
    return url.hostname, url.port


class Member:
    """One proxy, with cables to the broker and to the management API if that is asked for, and what its clients do."""

    def __init__(self, name, broker, folder, muting=False, managed=False, secured=False, **settings):
        self.name, self.broker = name, broker
        tls = urllib.parse.urlsplit(broker.tls)
        place = (tls.hostname, tls.port) if secured else broker.address
        self.cable = Muting(place) if muting else Cable(place)
        self.node = "%s:%d" % self.cable.address
        """As the proxy and its alerts call the broker."""
        self.files = folder / f"{name}.tls"
        # On a slow machine, too, no limit is met but those that a fault is about.
        patient = dict.fromkeys(("parked_retry", "close_wait", "probe_timeout", "confirm_timeout"), "60s")
        environment = {"vhosts": name} | patient | settings
        if managed:
            self.management = Cable(management(broker))
            environment["management_url"] = self.url("http", self.management.address)
        if secured:
            self.files.mkdir()
            self.trust("ca")
            self.present("server")
            environment |= {"listen_tls": "127.0.0.1:0", "upstream_ca_file": self.files / "ca.pem"}
            environment |= {"tls_cert_file": self.files / "tls.pem", "tls_key_file": self.files / "tls.key"}
        upstream = self.url("amqps" if secured else "amqp", self.cable.address)
        environment = {f"DLX_PROXY_{key.upper()}": str(value) for key, value in environment.items()}
        self.proxy = Proxy(upstream, "full", folder / f"{name}.log", **environment)

    def url(self, scheme, address):
        login = self.broker.parameters.credentials
        return f"{scheme}://{login.username}:{login.password}@%s:%d" % address

    def trust(self, authority):
        """The broker's certificate has to be signed by this one; the proxy reads the file again by itself, and so with the next."""
        self._take(f"{authority}.pem", "ca.pem")

    def present(self, certificate):
        self._take(f"{certificate}.key", "tls.key")
        self._take(f"{certificate}.pem", "tls.pem")

    def _take(self, name, to):
        shutil.copy(Path(self.broker.folder) / "tls" / name, self.files / to)

    def is_whole(self):
        return self.proxy.is_ready() and f'dlx_proxy_intake_consuming{{vhost="{self.name}"}} 1' in self.proxy.get("/metrics")[1]

    def metric(self, name, labels=""):
        """Its values, with these labels among others."""
        lines = self.proxy.get("/metrics")[1].splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{") and labels in line]

    def kill(self):
        self.proxy.process.kill()
        self.proxy.process.wait()

    def connect(self, direct=False):
        address = self.broker.address if direct else self.proxy.address
        return pika.BlockingConnection(pika.ConnectionParameters(*address, self.name, self.broker.parameters.credentials, **PATIENT))

    # === what clients do

    def prepare(self, channel, exchange="", **arguments):
        """A queue whose messages go to `dead` of this exchange when they die; what was in it is gone."""
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "dead"} | arguments)
        return channel

    def reject(self, channel, count=1, size=4, cancel=True):
        """So many messages of `orders`, at once. The consumer is cancelled afterwards, which waits until they are settled, unless told otherwise."""
        channel.basic_qos(prefetch_count=0)
        for _ in range(count):
            channel.basic_publish("", "orders", b"x" * size, pika.BasicProperties(delivery_mode=2))
        last = None
        for last, _, _ in channel.consume("orders", inactivity_timeout=30):
            assert last is not None, "no message"
            count -= 1
            if count == 0:
                break
        channel.basic_nack(last.delivery_tag, multiple=True, requeue=False)
        if cancel:
            channel.cancel()

    def depth(self, queue):
        with self.connect(direct=True) as connection:
            return connection.channel().queue_declare(queue, passive=True).method.message_count

    def live(self):
        """What a healthy application does: a message is rejected, one expires, and one comes back to be retried."""
        with self.connect() as connection:
            channel = self.prepare(connection.channel(), **RETRIES)
            channel.basic_publish("", "orders", b"expires", pika.BasicProperties(delivery_mode=2, expiration="1"))
            until(lambda: self.depth("dead") == 1, f"what expires in {self.name}")
            channel.basic_publish("", "orders", b"again", pika.BasicProperties(delivery_mode=2))
            for returned in (True, False):
                got = until(lambda: next((got for got in [channel.basic_get("orders")] if got[0]), None), "it comes back")
                channel.basic_nack(got[0].delivery_tag, requeue=returned)
            until(lambda: self.depth("dead") == 2, f"what is rejected in {self.name}")
            channel.queue_delete("orders")
