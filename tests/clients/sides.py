"""The same words said directly and by the way under test: both sides have to answer the same."""

import re

import pika
import pytest

from scene import arguments


class Side:
    """One of two vhosts with equal rights; its answers do not name the vhost."""

    def __init__(self, via, vhost, direct):
        self.via, self.vhost, self.direct = via, vhost, direct
        self.connections = {}

    def connection(self, user):
        kept = self.connections.get(user)
        if kept is None or not kept.is_open:
            kept = self.connections[user] = self.via.connect(direct=self.direct, vhost=self.vhost, user=user)
        return kept

    def attempt(self, deed, *, user):
        """What becomes of `deed(channel)`, on a channel of its own: its answer, or who closed what with which words."""
        # Which of exchange and key the broker names is another matter behind a proxy.
        words = lambda refusal: re.sub("(arg 'x-dead-letter-).*", r"\1…", refusal.reply_text.replace(self.vhost, "VHOST"))
        try:
            channel = self.connection(user).channel()
            answer = deed(channel)
            channel.close()
            return "ok", answer
        except pika.exceptions.ChannelClosedByBroker as refusal:
            return "channel", refusal.reply_code, words(refusal)
        except pika.exceptions.ConnectionClosedByBroker as refusal:
            return "connection", refusal.reply_code, words(refusal)
        except pika.exceptions.ProbableAccessDeniedError as refusal:
            return "open", str(refusal).replace(self.vhost, "VHOST")

    def declare(self, queue, *, user, **short):
        def deed(channel):
            answer = channel.queue_declare(queue, durable=True, arguments=arguments(**short)).method
            return answer.queue, answer.message_count, answer.consumer_count

        return self.attempt(deed, user=user)

    def hang_up(self):
        """End all connections; the next deed opens what it needs."""
        for connection in self.connections.values():
            if connection.is_open:
                connection.close()
        self.connections.clear()


@pytest.fixture(scope="module")
def sides(via):
    """Kept for all tests: brokers are slow to accept many connections, one after the other."""
    sides = [Side(via, via.judge, direct=True), Side(via, via.vhost, direct=False)]
    yield sides
    for side in sides:
        side.hang_up()
