"""A cable between a proxy and its broker on which the confirms for one exchange are lost: to the proxy its queue never answers."""

import socket
import struct
import threading

from raw import METHOD, PUBLISH

ACK, NACK = (60, 80), (60, 120)


class Muting:
    """Each exchange that the proxy publishes to has a channel of its own; so the confirms of that channel are those of the exchange."""

    def __init__(self, broker):
        self.broker, self.exchange = broker, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            broker, muted = socket.create_connection(self.broker), set()
            for source, sink, passes in ((client, broker, self._published), (broker, client, self._heard)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=pump, args=(source, sink, lambda *frame, passes=passes: passes(muted, *frame)), daemon=True).start()

    def _published(self, muted, channel, ids, arguments):
        if ids == PUBLISH and arguments[3 : 3 + arguments[2]].decode() == self.exchange:
            muted.add(channel)
        return True

    def _heard(self, muted, channel, ids, _):
        return not (channel in muted and ids in (ACK, NACK))

    def close(self):
        self.listener.close()


def pump(source, sink, passes):
    """Frame by frame, behind a protocol header if there is one."""
    buffer = b""
    try:
        while data := source.recv(1 << 16):
            buffer += data
            out, at = [], 8 if buffer[:4] == b"AMQP" else 0
            out.append(buffer[:at])
            while len(buffer) >= at + 7:
                kind, channel, size = struct.unpack_from(">BHI", buffer, at)
                if len(buffer) < at + size + 8:
                    break
                ids = struct.unpack_from(">HH", buffer, at + 7) if kind == METHOD else None
                if passes(channel, ids, buffer[at + 11 : at + 7 + size]):
                    out.append(buffer[at : at + size + 8])
                at += size + 8
            buffer = buffer[at:]
            sink.sendall(b"".join(out))
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
