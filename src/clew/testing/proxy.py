"""A TCP proxy that cuts connections at a chosen byte: what a network does at the worst moment.

It forwards to a server on a Unix socket or a TCP port. A `Cut` is armed for one direction; when so many bytes of that
direction have passed since then, both ends of that connection are closed, without forwarding the rest. (0: as soon as
there is something to forward.)

    with Proxy(server.socket) as proxy:
        proxy.cut("reply", after=0)           # the next reply is lost; what was asked for has been done
        ...
        assert proxy.cuts == 1
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

Direction = Literal["request", "reply"]
_CHUNK = 65536


class Cut(NamedTuple):
    """Lose a connection once `after` bytes of this direction have passed."""

    direction: Direction
    after: int


def by_tcp(url: str, port: int) -> str:
    """The same PostgreSQL URL, at a port of the loopback interface."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    who = f"{parts['user']}:{parts['password']}" if parts.get("password") else str(parts["user"])
    return f"postgresql://{who}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"


class Proxy:
    """Listens on a free port of the loopback interface until the block ends."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        self._waking, self._wake = socket.socketpair()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        self.cuts = 0
        self.passed: dict[Direction, int] = {"request": 0, "reply": 0}
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, url: str) -> str:
        """The same PostgreSQL URL, through this proxy."""
        return by_tcp(url, self.port)

    def cut(self, direction: Direction, after: int) -> None:
        """Arm one cut. It falls on whichever connection carries the deciding byte."""
        with self._lock:
            self._cut = Cut(direction, after)

    def disarm(self) -> bool:
        """Take back the cut; whether it was still armed."""
        with self._lock:
            armed, self._cut = self._cut is not None, None
        return armed

    def count(self) -> dict[Direction, int]:
        """Bytes that have passed in each direction since the last count."""
        with self._lock:
            passed, self.passed = self.passed, {"request": 0, "reply": 0}
        return passed

    def _share(self, direction: Direction, data: bytes) -> tuple[bytes, bool]:
        """What of the data may pass, and whether the connection ends after it."""
        with self._lock:
            if self._cut is not None and self._cut.direction == direction:
                if len(data) >= self._cut.after:
                    data, self._cut = data[: self._cut.after], None
                    self.cuts += 1
                    return data, True
                self._cut = Cut(direction, self._cut.after - len(data))
            self.passed[direction] += len(data)
            return data, False

    def _serve(self) -> None:
        pairs: dict[socket.socket, tuple[socket.socket, Direction]] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._waking, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in selector.select():
                    ready = key.fileobj
                    if ready is self._listener:
                        for end, other, direction in self._accept():
                            pairs[end] = (other, direction)
                            selector.register(end, selectors.EVENT_READ)
                    elif isinstance(ready, socket.socket) and ready in pairs:
                        other, direction = pairs[ready]
                        if not self._forward(ready, other, direction):
                            for end in (ready, other):
                                selector.unregister(end)
                                del pairs[end]
                                end.close()
        for end in pairs:
            end.close()

    def _accept(self) -> list[tuple[socket.socket, socket.socket, Direction]]:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self._target
        try:
            if host.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(Path(host) / f".s.PGSQL.{port}"))
            else:
                server = socket.create_connection((host, port))
        except OSError:
            client.close()
            return []
        return [(client, server, "request"), (server, client, "reply")]

    def _forward(self, source: socket.socket, sink: socket.socket, direction: Direction) -> bool:
        """Pass on what has arrived; False when the connection is over."""
        try:
            data = source.recv(_CHUNK)
            passing, over = self._share(direction, data) if data else (b"", True)
            if passing:
                sink.sendall(passing)
            if over and data and direction == "reply":
                # A reset, so that the client cannot mistake the end for an orderly one.
                sink.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            return False
        return not over

    def close(self) -> None:
        """End every connection and stop listening. Closing again does nothing."""
        if self._closing:
            return
        self._closing = True
        self._wake.send(b"x")
        self._thread.join()
        for end in (self._listener, self._wake, self._waking):
            end.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
