"""What a private header says counts only where the broker vouches for the publisher."""

from itertools import count

import pytest

import amqp10
from lab import until
from own import own  # noqa: F401
from raw import GET, GET_EMPTY, GET_OK, Raw, method, publish, short

USER_ID = "x-dlx-proxy-user-id"
USER_ID_FLAG = 0x10
FORGED = (USER_ID, b"S", "root")


@pytest.fixture
def proxied(own):
    """A proxy whose own user is no client's."""
    own.restart(user="all-rights")
    return own


def read(own, queue):
    """Empties the queue, as a client of the proxy; how many messages had neither a user-id nor a private name. By hand, as 3.x delivers the flags that no
    property has."""
    with Raw(own.way) as client:
        client.open_channel()
        for honest in count():
            client.send(method(1, GET, b"\0\0" + short(queue) + b"\1"))
            if client.frame().id == GET_EMPTY:
                return honest
            header = client.frame().payload
            assert header[13] & USER_ID_FLAG == 0 and b"x-dlx-proxy" not in header, header
            client.frame()


@pytest.mark.once
def test_a_user_id_cannot_be_forged_past_the_proxy(proxied):
    queue = proxied.queue("forged")
    with Raw(proxied.via, direct=True) as direct:
        direct.open_channel()
        for reserved in range(4):
            direct.send(*publish(1, "", queue, b"m", [FORGED], reserved=reserved))
        until(lambda: proxied.depth(queue) == 4, "all are there")
    if proxied.via.broker.is_4x:
        login = proxied.via.broker.parameters.credentials
        sender = amqp10.Connection(proxied.via.broker.address, proxied.via.vhost, login.username, login.password)
        sender.publish(queue, amqp10.message(b"m", ttl=60_000, **{USER_ID: amqp10.text("root")}))
        sender.close()
    assert read(proxied, queue) == 4 + proxied.via.broker.is_4x


@pytest.mark.once
def test_a_user_id_cannot_be_forged_through_the_proxy(proxied):
    """Where nothing can be added to a header, private names are removed all the same; and RabbitMQ does not look at flags that no property has."""
    queue = proxied.queue("forged")
    blind = [(b"S", "k" * 200)] * 630  # twice that is too large for a frame
    with Raw(proxied.way) as client:
        client.open_channel()
        client.send(*publish(1, "", queue, b"m", [("BCC", b"A", blind), FORGED]))
        for reserved in range(4):
            client.send(*publish(1, "", queue, b"m", [FORGED], reserved=reserved))
        until(lambda: proxied.depth(queue) == 5, "all are there")
    with Raw(proxied.via, direct=True) as direct:
        direct.open_channel()
        direct.send(method(1, GET, b"\0\0" + short(queue) + b"\1"))
        direct.expect(GET_OK)
        assert b"x-dlx-proxy" not in direct.frame().payload, "nor is it in the queue"
    assert read(proxied, queue) == 4


@pytest.mark.once
def test_what_is_parked_carries_the_proof(proxied):
    login = proxied.via.broker.user
    queue = proxied.queue("source", x_dead_letter_exchange="own-nowhere")
    for number, user in enumerate([None, login]):
        forged = {"x-parked-exchange": "secret", "x-parked-cause": "nacked", "n": number}
        proxied.publish(queue, user_id=user, headers=forged)
        proxied.channel.basic_reject(proxied.get(queue)[0].delivery_tag, requeue=False)
        ((_, properties, _),) = proxied.parked(1)
        headers = properties.headers
        assert (properties.user_id, headers[USER_ID]) == ("all-rights", user)
        assert (headers["x-parked-exchange"], headers["x-parked-cause"], headers["n"]) == ("own-nowhere", "no_exchange", number)
