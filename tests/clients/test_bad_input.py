"""What breaks the protocol is answered as RabbitMQ answers it: each case runs directly too, and all frames are compared."""

import struct

import pytest

from raw import (
    BODY, CHANNEL_CLOSE, CHANNEL_OPEN, CLOSE, CLOSE_OK, DECLARE, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, PUBLISH, QOS, QOS_OK,
    START, START_OK, Frame, Raw, declare, long, method, short, table,
)


pytestmark = pytest.mark.once


def frame(kind, channel, payload, end=b"\xce", size=None):
    return struct.pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


def header(channel, size, flags=b"\0\0", ids=(60, 0)):
    return bytes(Frame(HEADER, channel, struct.pack(">HHQ", *ids, size) + flags))


PUBLISHED = bytes(method(1, PUBLISH, b"\0\0" + short("") + short("nowhere") + b"\0"))
DEEP = table([("a", b"F", [("b", b"F", [("c", b"A", [(b"F", [])] * 3)])])])
BAD = {
    "wrong end octet": frame(METHOD, 1, b"\0\x32\0\x0a", end=b"\xcd"),
    "wrong end octet of a body": PUBLISHED + header(1, 4) + frame(BODY, 1, b"body", end=b"\0"),
    "wrong end octet of a heartbeat": frame(HEARTBEAT, 0, b"", end=b"\0"),
    "frame over frame_max": frame(BODY, 1, b"x" * 200_000),
    "method over frame_max": frame(METHOD, 1, b"x" * 200_000),
    "header over frame_max": PUBLISHED + frame(HEADER, 1, b"x" * 200_000),
    "a size without end": frame(BODY, 1, b"x" * 8, size=2**32 - 1, end=b"") + b"y" * 200_000,
    "header without method": header(1, 4),
    "body without header": frame(BODY, 1, b"body"),
    "body without header, after publish": PUBLISHED + frame(BODY, 1, b"body"),
    "method instead of header": PUBLISHED + bytes(declare(1, "queue")),
    "method instead of body": PUBLISHED + header(1, 4) + bytes(declare(1, "queue")),
    "second header": PUBLISHED + header(1, 4) + header(1, 4),
    "more body than said": PUBLISHED + header(1, 4) + frame(BODY, 1, b"bodybody"),
    "header of another class": PUBLISHED + header(1, 4, ids=(50, 0)),
    "header cut short": PUBLISHED + frame(HEADER, 1, b"\0\x3c\0"),
    "properties cut short": PUBLISHED + header(1, 4, flags=b"\xff\xff"),
    "a header with an inner table that is too long": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("a") + b"F" + struct.pack(">I", 999))),
    "a header with an inner table that is too short": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("a") + b"F" + long(short("b") + b"S" + b"\0\0\0\x09text"))),
    "a header with an inner array that is cut": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("x-death") + b"A" + long(b"F" + b"\0\0\0\x04a"))),
    "a header with an unknown field type": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("a") + b"?" + b"1234")),
    "an unknown field type deep in a header": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("x-death") + b"A" + long(b"F" + long(short("a") + b"?")))),
    "a header with a float that is no number": PUBLISHED + header(1, 0, flags=b"\x20\0" + long(short("a") + b"d" + b"\x7f\xf8" + b"\0" * 6)),
    "properties with a cut table": PUBLISHED + header(1, 4, flags=b"\x20\0" + DEEP[:-3]),
    "truncated table in declare": bytes(method(1, DECLARE, b"\0\0" + short("queue") + b"\0" + DEEP[:-4])),
    "table longer than its method": bytes(method(1, DECLARE, b"\0\0" + short("queue") + b"\0" + struct.pack(">I", 5000) + b"x" * 10)),
    "inner table longer than the outer": bytes(method(1, DECLARE, b"\0\0" + short("queue") + b"\0" + long(short("a") + b"F" + struct.pack(">I", 999)))),
    "unknown field type": bytes(method(1, DECLARE, b"\0\0" + short("queue") + b"\0" + long(short("a") + b"?" + b"1234"))),
    "declare cut in its name": bytes(method(1, DECLARE, b"\0\0" + b"\xffqueue")),
    "name that is not UTF-8": bytes(declare(1, b"\xff\xfe")),
    "DLX that is not UTF-8": bytes(declare(1, "bad-dlx", exclusive=True, fields=[("x-dead-letter-exchange", b"S", b"\xff\xfe"), ("x-expires", b"I", 0)])),
    "unknown method": bytes(method(1, (50, 99))),
    "unknown class": bytes(method(1, (999, 1))),
    "method cut in its number": frame(METHOD, 1, b"\0\x32\0"),
    "empty method": frame(METHOD, 1, b""),
    "unknown frame type": frame(7, 1, b"abcd"),
    "heartbeat on a channel": frame(HEARTBEAT, 1, b"") + PUBLISHED + header(1, 0) + frame(METHOD, 1, b""),
    "heartbeat with content": frame(HEARTBEAT, 0, b"lub-dub") + frame(METHOD, 1, b""),
    "channel not open": bytes(declare(9, "queue")),
    "channel opened twice": bytes(method(1, CHANNEL_OPEN, b"\0")),
    "channel over the maximum": bytes(method(60_000, CHANNEL_OPEN, b"\0")),
    "declare on channel 0": bytes(declare(0, "queue")),
    "body on channel 0": frame(BODY, 0, b"body"),
    "start-ok again": bytes(method(0, START_OK, table([]) + short("PLAIN") + long("x") + short("en_US"))),
    "settle with nothing delivered": bytes(method(1, (60, 80), struct.pack(">Q", 1) + b"\0")),
    "reject with nothing delivered": bytes(method(1, (60, 90), struct.pack(">Q", 1) + b"\0")),
}


def answers(scene, words, direct):
    """What follows on `words` from a connection with one open channel, up to a close or the answer to a later request."""
    with Raw(scene.via, direct=direct) as raw:
        raw.open_channel()
        try:
            raw.write(words)
            raw.send(method(struct.unpack(">H", words[1:3])[0], QOS, b"\0" * 7))  # on their channel: only there is it later
        except OSError:  # it hung up while we were speaking
            pass
        return raw.answers(CHANNEL_CLOSE, QOS_OK)


@pytest.mark.parametrize("case", BAD)
def test_answered_as_the_broker_does(scene, case):
    by_the_broker = answers(scene, BAD[case], direct=True)
    assert answers(scene, BAD[case], direct=False) == by_the_broker
    scene.channel.queue_declare("", exclusive=True)  # nobody else is disturbed


def test_the_end_of_the_stream(scene):
    """After the close-ok the broker hangs up, and the client sees that."""
    with Raw(scene.via) as raw:
        raw.write(BAD["frame over frame_max"])
        assert raw.answers()[-1].id == CLOSE
        raw.send(method(0, CLOSE_OK))
        assert raw.frame() is None


def opening(scene, words, direct):
    """All bytes that answer the first words of a connection."""
    with Raw(scene.via, direct=direct, greet=False) as raw:
        raw.write(words)
        try:
            raw.socket.shutdown(1)  # no more will come
        except OSError:  # it has hung up already
            pass
        return raw.everything()


@pytest.mark.parametrize("words", [
    b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"AMQP\x02\x01\x00\x00", b"AMQP\x01\x01\x08\x00", b"AMQP\x00\x00\x09\x00",
    b"AMQP\x09\x09\x09\x09", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05abcde", b"AMQP", b"",
], ids=["1.0", "1.0 SASL", "1.0 TLS", "0-8", "0-9", "unknown", "HTTP", "TLS", "cut", "nothing"])
def test_other_protocols_pass_raw(scene, words):
    assert opening(scene, words, direct=False) == opening(scene, words, direct=True)


def test_an_amqp_1_0_conversation(scene):
    """SASL, its outcome, the header after it: AMQP 1.0 goes through as it is (3.x hangs up: it speaks it only by a plugin)."""
    talks = []
    login = scene.via.broker.parameters.credentials
    answer = f"\0{login.username}\0{login.password}".encode()
    init = b"\0\x53\x41\xc0" + bytes([len(answer) + 10, 2]) + b"\xa3\x05PLAIN" + b"\xa0" + bytes([len(answer)]) + answer
    steps = [  # what we say, and what ends the answer
        (b"AMQP\x03\x01\x00\x00", b"PLAIN"),
        (struct.pack(">IBBH", len(init) + 8, 2, 1, 0) + init, b"\0\x53\x44"),
        (b"AMQP\x00\x01\x00\x00", b"AMQP\x00\x01\x00\x00"),
    ]
    for direct in (True, False):
        with Raw(scene.via, direct=direct, greet=False) as raw:
            for words, end in steps:
                raw.write(words)
                while end not in raw.buffer and raw.more():
                    pass
                if end not in raw.buffer:
                    break
            talks.append(raw.buffer)
    assert talks[0] == talks[1]
    assert (steps[-1][1] in talks[0]) == scene.via.broker.is_4x


LOGINS = {
    "wrong password": (b"\0guest\0wrong", b"PLAIN"), "unknown user": (b"\0nobody\0x", b"PLAIN"), "unknown mechanism": (b"x", b"MAGIC"),
    "no separator": (b"guest", b"PLAIN"),
}


def answered(scene, *frames):
    """What follows on `frames` from somebody who has seen connection.start: directly, and by the way under test."""
    sides = [Raw(scene.via, direct=direct, greet=False) for direct in (True, False)]
    for raw in sides:  # first all speak, because the broker takes seconds to hang up
        raw.write(PROTOCOL_HEADER)
        raw.expect(START)
        raw.send(*frames)
    answers = [raw.answers() for raw in sides]
    for raw in sides:
        raw.close()
    return answers


@pytest.mark.parametrize("case", LOGINS)
def test_refused_logins(scene, case):
    response, mechanism = LOGINS[case]
    capabilities = table([("capabilities", b"F", [("authentication_failure_close", b"t", True)])])
    by_the_broker, by_the_way = answered(scene, method(0, START_OK, capabilities + short(mechanism) + long(response) + short("en_US")))
    assert by_the_way == by_the_broker


def test_a_method_before_open(scene):
    by_the_broker, by_the_way = answered(scene, declare(1, "queue"))
    assert by_the_way == by_the_broker
