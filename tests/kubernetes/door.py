"""Lives in the network namespace of a Pod and hands out sockets of it: `["connect", host, port]` or `["listen", host, port]`, a line each, on
the socket whose number is given."""

import fcntl
import json
import socket
import struct
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1

with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
asked = socket.socket(fileno=int(sys.argv[1]))
asked.sendall(b"up\n")
for line in asked.makefile():
    what, host, port = json.loads(line)
    try:
        with socket.create_server((host, port)) if what == "listen" else socket.create_connection((host, port), 5) as made:
            socket.send_fds(asked, [b"ok\n"], [made.fileno()])
    except OSError as problem:
        asked.sendall(f"{type(problem).__name__}\n".encode())
