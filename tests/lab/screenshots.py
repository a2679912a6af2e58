"""`make screenshots`: docs/groups-light.png and docs/groups-dark.png, of some 4,000 messages that really die in front of the newest broker."""

import base64
import io
import json
import sys
import tempfile
from pathlib import Path

import pika
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "clients"))
from browser import Browser
from console import management
from lab import REPOSITORY, Proxy, Via, brokers, until

DEAD = "shop.dead"
WIDTH, LOWEST, HIGHEST = 1280, 400, 800
COLOURS = 128
LARGEST = 80_000
DEATHS = [
    ("orders", 2412, "rejected", "OutOfStock: SKU 88-1204"),
    ("payments", 1109, "delivery_limit", "GatewayTimeout: no answer from the bank within 10 s"),
    ("mails", 431, "rejected", "RecipientRefused: 550 mailbox unavailable"),
    ("invoices", 67, "expired", ""),
]
"""Queue, how many die, the reason, the error."""


def die(via, queue, count, reason, error):
    channel = via.connection.channel()
    arguments = {"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    arguments |= {"delivery_limit": {"x-delivery-limit": 1}, "expired": {"x-message-ttl": 50}}.get(reason, {})
    channel.queue_declare(queue, durable=True, arguments=arguments)
    for number in range(count):
        body = json.dumps({"number": 10_000 + number, "customer": f"C-{number % 97:04}", "total": f"{number % 90 + 9}.90 EUR"})
        headers = {"x-exception-message": error} if error else {}
        properties = pika.BasicProperties(delivery_mode=2, content_type="application/json", message_id=f"{queue}-{number}", headers=headers)
        channel.basic_publish("", queue, body, properties)
    if reason != "expired":
        channel.basic_qos(prefetch_count=200)
        channel.basic_consume(queue, lambda _, method, *rest: channel.basic_reject(method.delivery_tag, requeue=reason == "delivery_limit"))
    return channel


def picture(page, scheme):
    page.looks(WIDTH, HIGHEST, scheme)
    height = page.run("Math.ceil(document.body.getBoundingClientRect().bottom)")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(max(height, LOWEST), HIGHEST), "scale": 1}
    data = page.call("Page.captureScreenshot", clip=clip)["data"]
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    file = REPOSITORY / f"docs/groups-{scheme}.png"
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    assert size <= LARGEST, f"{file} has {size} bytes"
    print(f"{file.relative_to(REPOSITORY)}: {size} bytes")


def main():
    broker = brokers()[-1]
    with tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(broker.url, "full", Path(folder) / "log", DLX_PROXY_MANAGEMENT_URL=management(Via(broker)))
        try:
            proxy.wait_ready()
            via = Via(broker, proxy, "/")
            via.connection.channel().queue_declare(DEAD, durable=True)
            channels = [die(via, *death) for death in DEATHS]
            total = sum(count for _, count, *_ in DEATHS)
            work = lambda: via.connection.process_data_events(0.2)
            until(lambda: broker.messages("/", DEAD) == total, lambda: f"{broker.messages('/', DEAD)} of {total}", pause=work)
            for channel in channels:
                channel.close()
            browser = Browser()
            login = broker.parameters.credentials
            page = browser.page("http://%s:%d/vhosts/%%2F/queues/%s" % (*proxy.admin, DEAD), login.username, login.password)
            page.reads(*(queue for queue, *_ in DEATHS))
            for scheme in ("light", "dark"):
                picture(page, scheme)
            browser.close()
        finally:
            proxy.stop()


if __name__ == "__main__":
    main()
