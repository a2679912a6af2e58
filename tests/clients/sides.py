"""The same words said directly and by the way under test: both sides have to answer the same."""

import pika
import pytest

from scene import arguments


class Side:
    """One of two vhosts with equal rights; its answers do not name the vhost."""

    def __init__(self, via, vhost, direct):
        self.via, self.vhost, self.direct = via, vhost, direct
        self.connections = {}

    def connection(self, user=None, number=1):
        kept = self.connections.get((user, number))
        if kept is None or not kept.is_open:
            kept = self.connections[user, number] = self.via.connect(direct=self.direct, vhost=self.vhost, user=user)
        return kept

    def attempt(self, deed, *, user=None, connection=1):
        """What becomes of `deed(channel)`, on a channel of its own: its answer, or who closed what with which words."""
        words = lambda refusal: refusal.reply_text.replace(self.vhost, "VHOST")
        try:
            channel = self.connection(user, connection).channel()
            answer = deed(channel)
            channel.close()
            return "ok", answer
        except pika.exceptions.ChannelClosedByBroker as refusal:
            return "channel", refusal.reply_code, words(refusal)
        except pika.exceptions.ConnectionClosedByBroker as refusal:
            return "connection", refusal.reply_code, words(refusal)
        except pika.exceptions.ProbableAccessDeniedError as refusal:
            return "open", str(refusal).replace(self.vhost, "VHOST")

    def declare(self, queue, *, user=None, connection=1, passive=False, durable=True, exclusive=False, auto_delete=False, args=None, **short):
        def deed(channel):
            answer = channel.queue_declare(queue, passive, durable, exclusive, auto_delete, args or arguments(**short)).method
            return answer.queue, answer.message_count, answer.consumer_count

        return self.attempt(deed, user=user, connection=connection)

    def hang_up(self):
        """End all connections; the next deed opens what it needs."""
        for connection in self.connections.values():
            if connection.is_open:
                connection.close()
        self.connections.clear()


class Both:
    def __init__(self, sides):
        self.sides = sides

    def declare(self, queue, **words):
        """The answer, which has to be the same on both sides."""
        by_the_broker, by_the_way = (side.declare(queue, **words) for side in self.sides)
        assert by_the_way == by_the_broker
        return by_the_way

    def hang_up(self):
        for side in self.sides:
            side.hang_up()


@pytest.fixture(scope="module")
def sides(via):
    """Kept for all tests: brokers are slow to accept many connections, one after the other."""
    sides = [Side(via, via.judge, direct=True), Side(via, via.vhost, direct=False)]
    yield sides
    for side in sides:
        side.hang_up()


@pytest.fixture
def both(via, scene, sides):
    yield Both(sides)
    for connection in (sides[0].connection(), via.direct):
        channel = connection.channel()
        for queue in scene.queues:
            channel.queue_delete(queue)
        channel.close()
