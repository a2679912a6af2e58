"""A worker of dramatiq: with_dramatiq.py URL. See test_frameworks.py."""

import sys
import threading
import time

import dramatiq
import pika
from dramatiq.brokers.rabbitmq import RabbitmqBroker, _RabbitmqConsumer
from dramatiq.middleware import Retries


class Returning(_RabbitmqConsumer):
    def nack(self, message):
        reason = str(message._exception)
        self.known_tags.discard(message._tag)
        self.connection.add_callback_threadsafe(lambda: self.give_back(message._tag, reason))

    def give_back(self, tag, reason):
        if "dlx_proxy" in self.connection._impl.server_properties:
            self.channel.queue_unbind("any", "dlx-proxy.verdict", str(tag), {"reason": reason})
        self.channel.basic_nack(tag, requeue=True)


class ProxiedBroker(RabbitmqBroker):
    consumer_class = Returning

    def enqueue(self, message, *, delay=None):
        if delay is None or "dlx_proxy" not in self.connection._impl.server_properties:
            return super().enqueue(message, delay=delay)
        self.declare_queue(message.queue_name, ensure=True)
        due = {"x-opt-delivery-time": int(time.time() * 1000) + delay}
        self.channel.basic_publish("", message.queue_name, message.encode(), pika.BasicProperties(delivery_mode=2, headers=due))
        return message


broker = ProxiedBroker(url=sys.argv[1], middleware=[Retries(max_retries=0)])
dramatiq.set_broker(broker)
began, over = threading.Event(), threading.Event()


def say(word):
    # As one string: with PYTHONUNBUFFERED set, threads that print at once mix the parts of their lines.
    print(f"{word} {int(time.time() * 1000)}\n", end="", flush=True)


@dramatiq.actor(queue_name="work")
def fails():
    say("fails")
    raise ValueError("no address")


@dramatiq.actor(queue_name="work")
def late():
    say("late")


@dramatiq.actor(queue_name="slow")
def hangs():
    say("hangs")
    over.set() if began.is_set() else began.set() or over.wait()  # Until it is delivered again.


worker = dramatiq.Worker(broker, worker_threads=2)
worker.start()
say("begun")
fails.send()
late.send_with_options(delay=500)
hangs.send()
threading.Event().wait()
