"""What breaks the protocol is answered as RabbitMQ answers it: each case runs directly too, and all frames are compared. (The states of a
connection, logins and other protocols: `tests/differential`.)"""

import struct

import pytest

from raw import (
    BODY, CHANNEL_CLOSE, CHANNEL_OPEN, DECLARE, HEADER, HEARTBEAT, METHOD, PUBLISH, QOS, QOS_OK,
    START_OK, Frame, Raw, declare, long, method, short, table,
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


def opening(scene, words, direct):
    """All bytes that answer the first words of a connection."""
    with Raw(scene.via, direct=direct, greet=False) as raw:
        raw.write(words)
        try:
            raw.socket.shutdown(1)  # no more will come
        except OSError:  # it has hung up already
            pass
        return raw.everything()


@pytest.mark.parametrize("words", [b"AMQP", b""], ids=["cut", "nothing"])
def test_who_hangs_up_before_the_first_words_are_complete(scene, words):
    assert opening(scene, words, direct=False) == opening(scene, words, direct=True)
