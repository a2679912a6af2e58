"""9: acks, nacks and rejects in any order, over tags that are withheld, settled or outstanding."""

import pika
import pytest

from expect import Death, check
from lab import until


class Ledger:
    """What a client knows of its deliveries, and the words by which it settles them: the model of 9.1."""

    def __init__(self, scene, drawn, *, noise=True):
        self.scene, self.drawn = scene, drawn
        self.dlx, self.sink = scene.target()
        self.managed = scene.queue("managed", dlx=self.dlx)
        self.plain = scene.queue("plain")
        self.noise = scene.queue("noise") if noise else None
        self.outstanding = {}  # delivery tag: (queue, body), in order of delivery
        self.acked, self.dead = [], []
        self.waiting = self.heard = self.settled = self.published = 0
        self.open()

    def open(self):
        self.channel = self.scene.connection.channel()
        for queue in (self.managed, self.plain):
            self.channel.basic_consume(queue, lambda _channel, method, _properties, body, queue=queue: self._deliver(queue, method, body))
        if self.noise:  # its deliveries use up tags that nobody may settle
            self.channel.basic_consume(self.noise, self._hear, auto_ack=True)

    def _hear(self, *_):
        self.heard += 1

    def _deliver(self, queue, method, body):
        self.outstanding[method.delivery_tag] = queue, body
        self.waiting -= 1

    def publish(self, count):
        """Publish `count` messages, here and there, and wait until all that is due is delivered."""
        queues = [self.managed, self.managed, self.plain] + [self.noise] * bool(self.noise)
        for _ in range(count):
            queue = self.drawn.choice(queues)
            self.published += 1
            if queue == self.noise:
                self.heard -= 1
            else:
                self.waiting += 1
            self.channel.basic_publish("", queue, b"%d" % self.published)
        self.work(lambda: self.waiting == 0 and self.heard == 0)

    def work(self, condition):
        def look():
            assert self.channel.is_open, f"closed: {self.channel._impl._closing_reason}; outstanding: {self.outstanding}"
            return condition()

        until(look, lambda: f"{self.waiting} deliveries", pause=lambda: self.scene.connection.process_data_events(time_limit=0.05))

    def settle(self):
        """One settlement that the broker would accept."""
        tag = self.drawn.choice(list(self.outstanding))
        multiple = self.drawn.random() < 0.5
        said = 0 if multiple and self.drawn.random() < 0.2 and not self.waiting else tag  # 0 would settle what is on its way
        tags = [each for each in self.outstanding if each <= (said or each)] if multiple else [tag]
        fate = self.drawn.choices(["ack", "dead", "back"], [4, 5, 1])[0]
        if fate == "ack":
            self.channel.basic_ack(said, multiple)
        elif multiple or self.drawn.random() < 0.5:
            self.channel.basic_nack(said, multiple, requeue=fate == "back")
        else:
            self.channel.basic_reject(said, requeue=fate == "back")
        self.settled += 1
        for each in tags:
            queue, body = self.outstanding.pop(each)
            if fate == "back":
                self.waiting += 1
            elif fate == "dead" and queue == self.managed:
                self.dead.append(body)
            else:
                self.acked.append(body)

    def assert_fates(self):
        """Every dead letter came once, in the order of the settlements; nothing else did."""
        if self.dead:
            assert [body for _, _, body in self.sink.take(len(self.dead))] == self.dead
        self.dead.clear()
        assert not self.sink.arrived


def test_a_thousand_draws(scene, drawn):
    ledger = Ledger(scene, drawn)
    while ledger.settled < 1000:
        ledger.publish(drawn.randint(1, 9))
        for _ in range(drawn.randint(1, 5)):
            if ledger.outstanding:
                ledger.settle()
    while ledger.outstanding or ledger.waiting:
        ledger.work(lambda: ledger.outstanding)
        ledger.settle()
    ledger.assert_fates()
    ledger.channel.close()
    assert scene.depth(ledger.managed) == scene.depth(ledger.plain) == 0


def test_what_the_broker_refuses(scene, drawn):
    """A tag that is settled, withheld, or unknown: 406, in the same words, after what was said before has been done."""
    ledger = Ledger(scene, drawn, noise=False)
    for _ in range(25):
        ledger.publish(6)
        before = set(ledger.outstanding)
        for _ in range(drawn.randint(1, 3)):
            if ledger.outstanding:
                ledger.settle()
        ledger.work(lambda: ledger.waiting == 0)
        gone = sorted(before - set(ledger.outstanding))
        tag = drawn.choice([drawn.choice(gone), drawn.choice(gone), max(before) + 100])
        verb = drawn.choice([ledger.channel.basic_ack, ledger.channel.basic_nack])
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
            verb(tag, multiple=drawn.random() < 0.5)
            ledger.channel.basic_qos(prefetch_count=0)
        assert (refusal.value.reply_code, refusal.value.reply_text) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
        ledger.waiting = len(ledger.outstanding)  # the broker gives them back
        ledger.outstanding.clear()
        ledger.open()
        ledger.work(lambda: ledger.waiting == 0)
    ledger.assert_fates()
    ledger.channel.close()


def test_tag_0_with_nothing_outstanding(scene):
    """9.1: fine with multiple, refused alone."""
    channel = scene.connection.channel()
    channel.basic_ack(0, multiple=True)
    channel.basic_nack(0, multiple=True, requeue=False)
    channel.basic_qos(prefetch_count=1)
    channel.basic_reject(0, requeue=False)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="unknown delivery tag 0"):
        channel.basic_qos(prefetch_count=2)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_in_a_transaction(scene, end):
    """9.2."""
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    scene.publish("", source)
    channel = scene.connection.channel()
    channel.tx_select()
    tag = scene.get(source, channel)[0].delivery_tag
    channel.basic_reject(tag, requeue=False)
    if end == "rollback":
        channel.tx_rollback()
        channel.basic_ack(tag)
    channel.tx_commit()
    if end == "commit":
        assert sink.one()[1].headers["x-death"][0]["reason"] == "rejected"
    channel.close()
    assert scene.depth(source) == 0 and not sink.arrived


def test_recover_leaves_what_was_rejected(scene):
    """9.3: it returns what is unacked, and a reject before it is settled."""
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    for number in range(20):
        scene.publish("", source, b"%d" % number)
    channel = scene.connection.channel()
    tags = [scene.get(source, channel)[0].delivery_tag for _ in range(20)]
    for tag in tags[::2]:
        channel.basic_reject(tag, requeue=False)
    channel.basic_recover(requeue=True)
    assert [body for _, _, body in sink.take(10)] == [b"%d" % number for number in range(0, 20, 2)]
    assert scene.depth(source) == 10
    channel.close()


@pytest.mark.parametrize("end", ["channel closed", "connection closed", "consumer cancelled", "queue deleted", "client vanished"])
def test_rejects_before_an_end(scene, end):
    """What was rejected before it is dead, once: not returned to its queue, not lost."""
    dlx, sink = scene.target()
    source = scene.queue("source", dlx=dlx)
    connection = scene.via.connect()
    channel = connection.channel()
    scene.queue("source", dlx=dlx, channel=channel)  # so that its session knows the target
    sent = [scene.publish("", source, b"%d" % number) for number in range(100)]
    tags = []
    consumer = channel.basic_consume(source, lambda _channel, method, *_: tags.append(method.delivery_tag))
    until(lambda: len(tags) == 100, "100 deliveries", pause=lambda: connection.process_data_events(time_limit=0.05))
    for tag in tags:
        channel.basic_reject(tag, requeue=False)
    match end:
        case "channel closed":
            channel.close()
        case "connection closed":
            connection.close()
        case "consumer cancelled":
            channel.basic_cancel(consumer)
        case "queue deleted":
            channel.queue_delete(source)
        case "client vanished":
            connection._impl._transport.abort()
    for got, message in zip(sink.take(100), sent):
        check(got, message, scene.by("rejected"), [Death(source, "rejected", "", [source])], exchange=dlx, key=source, delivered=True)
    assert not sink.arrived
    if end != "queue deleted":
        assert scene.depth(source) == 0
    if connection.is_open and end != "client vanished":
        connection.close()
