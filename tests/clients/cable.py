"""A cable between a proxy and its broker, or a browser and a proxy, which can be cut and mended, or hold back the answers."""

import contextlib
import socket
import threading


class Cable:
    """`listen` opens the proxy's end, at a given address or one of its choice, `broker` is the other end. Whole from the start."""

    def __init__(self, broker, listen=lambda address=("127.0.0.1", 0): socket.create_server(address)):
        self._listen, self._broker, self._ends = listen, broker, []
        self.passes = threading.Event()
        """While it is not set, answers wait."""
        self.passes.set()
        self.connections = 0
        """So many were opened."""
        self.held, self.has_held, self.goes_on = None, threading.Event(), threading.Event()
        """With these bytes a request is held back, with all that follow it, until it goes on."""
        self._open(listen())

    def _open(self, listener):
        self._listener, self.address = listener, listener.getsockname()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def mend(self):
        """At the same address."""
        self._open(self._listen(self.address))

    def cut(self):
        """Who connects now is refused."""
        for end in (self._listener, *self._ends):
            _hang_up(end)
        self._listener.close()
        self._ends.clear()

    def _accept(self, listener):
        while True:
            try:
                proxy, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                proxy.close()
                continue
            self.connections += 1
            self._ends += [proxy, broker]
            for source, sink, waits in ((proxy, broker, self._hold), (broker, proxy, lambda _: self.passes.wait())):
                threading.Thread(target=pump, args=(source, sink, waits), daemon=True).start()

    def _hold(self, request):
        if self.held and self.held in request:
            self.has_held.set()
            self.goes_on.wait()


def pump(source, sink, waits=lambda _: None):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            waits(data)
            sink.sendall(data)
    for end in (source, sink):
        _hang_up(end)


def _hang_up(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
