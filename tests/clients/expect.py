"""What a dead letter must look like: the rules of semantics, and, in one place, where the proxy's differ from the broker's.

The broker itself is the judge of the rules: `pytest --direct` runs the same expectations against it.
"""

import time
from dataclasses import dataclass, field

BASIC_PROPERTIES = (
    "content_type content_encoding delivery_mode priority correlation_id reply_to expiration "
    "message_id timestamp type user_id app_id cluster_id"
).split()


COUNTS = ("x-delivery-count", "x-acquired-count")
"""What quorum queues add to a delivery."""


@dataclass(frozen=True)
class Rules:
    """How a dead letter looks on this generation of broker if `maker` ("proxy" or "broker") made it.
    `proxied`: its publisher and its consumer talk to the broker through the proxy."""

    is_4x: bool
    maker: str
    proxied: bool

    @property
    def _native_4x(self):
        return self.is_4x and self.maker == "broker"

    # --- The promised differences: all of them are here. -------------------------------------------------------------

    @property
    def cc_survives_a_set_key(self):
        """A native 4.x leaves CC on a message that was dead-lettered by a set key, without routing by it."""
        return self._native_4x

    @property
    def redelivered(self):
        """A native 4.x marks what was delivered once before its death (unless a waiting consumer of a classic queue takes
        it at once); the proxy's copy is a new publication."""
        return self._native_4x

    @property
    def counts_travel(self):
        """A native 4.x carries x-acquired-count and x-delivery-count into the next quorum queue."""
        return self._native_4x

    @property
    def client_history_counts(self):
        """A native 4.x overwrites an x-death that a client sent; through the proxy it is continued on every version."""
        return self.proxied or not self.is_4x

    @property
    def same_second_counts_once(self):
        """Then a native death of 4.x in the second of its predecessor, in the same queue, cannot be told from it."""
        return self._native_4x and self.proxied

    @property
    def parks(self):
        """The proxy parks what nothing routes; the broker discards it silently."""
        return self.maker == "proxy"

    # --- The same by either maker, but not on each generation --------------------------------------------------------

    @property
    def has_last_death(self):
        return self.is_4x

    @property
    def older_entries_are_reversed(self):
        """3.x reverses the entries that were there at each death (4.2)."""
        return not self.is_4x

    def original_expiration(self, text):
        """3.x keeps the client's own text, 4.x the number (3.2)."""
        return str(int(text)) if self.is_4x else text


def rules(via, maker):
    return Rules(via.broker.is_4x, maker, not via.is_direct)


@dataclass(frozen=True)
class Death:
    """One entry of x-death."""

    queue: str
    reason: str
    exchange: str
    keys: list
    count: int = 1
    expiration: str | None = None
    """The `expiration` that this death took from the message, as the client wrote it."""


@dataclass
class Sent:
    """A message as its client published it."""

    exchange: str
    key: str
    properties: object
    body: bytes
    since: float = field(default_factory=time.time)

    @property
    def id(self):
        return self.properties.message_id

    @property
    def headers(self):
        return dict(self.properties.headers or {})


def entry(death, by):
    """What `death` reads as in x-death, without its time."""
    table = {
        "count": death.count, "reason": death.reason, "queue": death.queue,
        "exchange": death.exchange, "routing-keys": death.keys,
    }
    if death.expiration is not None:
        table["original-expiration"] = by.original_expiration(death.expiration)
    return table


def history(deaths, first, by):
    """The headers that these deaths (newest first) leave, without times; `first` is the first of them all."""
    headers = {"x-death": [entry(death, by) for death in deaths]}
    for name, death in [("first", first)] + [("last", deaths[0])] * by.has_last_death:
        headers |= {f"x-{name}-death-{what}": getattr(death, what) for what in ("exchange", "queue", "reason")}
    return headers


def without_times(headers, since):
    """headers with every `time` of x-death taken out, after a look at it: seconds since the epoch, between then and now."""
    headers = dict(headers or {})
    entries = []
    for table in headers.get("x-death", []):
        table = dict(table)
        moment = table.pop("time").timestamp()
        assert int(since) <= moment <= time.time(), f"x-death time {moment}, published at {since}"
        entries.append(table)
    return headers | ({"x-death": entries} if "x-death" in headers else {})


def check_content(got, sent, by, deaths, *, first=None, keyed=False, extra_headers=None, since=None):
    """Body, every basic property and every header of a dead letter. `keyed`: some death of its life had a set key.
    `extra_headers`: what the broker adds at this delivery, like x-delivery-count of a 3.x quorum queue."""
    _, properties, body = got
    assert body == sent.body
    expected = {name: getattr(sent.properties, name) for name in BASIC_PROPERTIES} | {"expiration": None}
    assert {name: getattr(properties, name) for name in BASIC_PROPERTIES} == expected

    headers = sent.headers | (extra_headers or {})
    headers.pop("BCC", None)
    if keyed and not by.cc_survives_a_set_key:
        headers.pop("CC", None)
    headers |= history(deaths, first or deaths[-1], by)
    assert without_times(properties.headers, sent.since if since is None else since) == headers


def expect_parked(scene, sent, reason, deaths, *, exchange, cause):
    """The dead letter of `sent` is parked, once."""
    (got,) = scene.parked(sent)
    check_parked(got, sent, scene.by(reason), deaths, exchange=exchange, cause=cause)


def check_parked(got, sent, by, deaths, *, exchange, cause, keyed=False):
    """A message of the parking queue, as its operator gets it: the dead letter with a note about where it should have gone."""
    method, properties, body = got
    headers = {name: value for name, value in properties.headers.items() if name not in COUNTS and not name.startswith("x-dlx-proxy-")}
    assert (headers.pop("x-parked-exchange"), headers.pop("x-parked-cause")) == (exchange, cause)
    properties.headers = headers
    check_content((method, properties, body), sent, by, deaths, keyed=keyed)


def check(got, sent, by, deaths, *, exchange, key, delivered=False, **content):
    """All of a dead letter as it is delivered. `delivered`: somebody had it before it died."""
    method = got[0]
    assert (method.exchange, method.routing_key) == (exchange, key)
    assert not method.redelivered or (delivered and by.redelivered)
    check_content(got, sent, by, deaths, **content)
