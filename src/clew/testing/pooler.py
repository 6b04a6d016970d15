"""A pooler in transaction mode, as PgBouncer is one: what a session keeps is kept for whoever comes next.

Clients get a server session for each transaction, and give it back after that: with its settings, and with what it
listens to. What a session hears while nobody has it is lost.

    with Pooler(server.socket) as pooler:
        clew.open(pooler.url(database.url))

PostgreSQL is asked for no password (as our test servers do not ask for one), and so are clients.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from clew.testing.proxy import by_tcp

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_IDLE = b"I"
_ASKS = b"QSF"
"""What PostgreSQL answers with a "ready": a query, a sync, a function call."""
_OURS = (b"user", b"database", b"client_encoding", b"application_name")


class _Line:
    """A socket that messages come from."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._left = b""

    def exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            more = self.end.recv(65536)
            if not more:
                raise ConnectionError("the other side has gone")
            self._left += more
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def message(self) -> tuple[bytes, bytes]:
        """Its kind, and all of it."""
        head = self.exactly(5)
        return head[:1], head + self.exactly(struct.unpack("!I", head[1:])[0] - 4)

    def waiting(self) -> bool:
        return bool(self._left)

    def at_once(self) -> bool:
        """Whether something is there."""
        return self.waiting() or bool(select.select([self.end], [], [], 0)[0])


class _Session(NamedTuple):
    """A session of the server; `hello` is what it said of its settings."""

    line: _Line
    hello: bytes


class Pooler:
    """Listens on a free port of the loopback interface until the block ends. `size`: sessions for each role.

    `in_turns`: the session that was idle for longest is given out, else the one that was used last.
    """

    def __init__(self, target: tuple[str, int], *, size: int = 4, in_turns: bool = False) -> None:
        self._target = target
        self._size = size
        self._in_turns = in_turns
        self._changed = threading.Condition()
        self._idle: dict[bytes, list[_Session]] = {}
        self._made: dict[bytes, int] = {}
        self._ends: set[socket.socket] = set()
        self.served = 0
        """Transactions."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, name="pooler", daemon=True).start()

    def url(self, url: str) -> str:
        """The same PostgreSQL URL, through this pooler."""
        return by_tcp(url, int(self._listener.getsockname()[1]))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), name="pooled", daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with self._changed:
            self._ends.add(end)
        with contextlib.suppress(OSError), end:
            client = _Line(end)
            wanted = self._greet(client)
            if wanted is None:
                return
            session = self._borrow(wanted)
            end.sendall(b"R" + struct.pack("!II", 8, 0) + session.hello + b"Z" + struct.pack("!I", 5) + _IDLE)
            self._give_back(wanted, session)
            while True:
                kind, message = client.message()
                if kind == b"X":
                    return
                self._transact(client, wanted, kind, message)
        with self._changed:
            self._ends.discard(end)

    @staticmethod
    def _greet(client: _Line) -> bytes | None:
        """Who the client is, as the server is to be told."""
        while True:
            size, code = struct.unpack("!II", client.exactly(8))
            rest = client.exactly(size - 8)
            if code == _CANCEL:
                return None
            if code not in (_SSL, _GSS):
                break
            client.end.sendall(b"N")
        words = rest.split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=False))
        told = b"".join(name + b"\0" + given[name] + b"\0" for name in _OURS if name in given)
        return struct.pack("!II", len(told) + 9, code) + told + b"\0"

    # -- sessions

    def _borrow(self, wanted: bytes) -> _Session:
        with self._changed:
            idle = self._idle.setdefault(wanted, [])
            while not idle and self._made.get(wanted, 0) >= self._size:
                self._changed.wait()
            if idle:
                session = idle.pop(0 if self._in_turns else -1)
                while session.line.at_once():
                    session.line.message()  # nobody was there to hear it
                return session
            self._made[wanted] = self._made.get(wanted, 0) + 1
        return self._connect(wanted)

    def _connect(self, wanted: bytes) -> _Session:
        folder, port = self._target
        end = socket.socket(socket.AF_UNIX)
        end.connect(str(Path(folder) / f".s.PGSQL.{port}"))
        end.sendall(wanted)
        line, hello, kind = _Line(end), b"", b""
        while kind != b"Z":
            kind, message = line.message()
            if kind == b"E":
                raise ConnectionError(message.decode(errors="replace"))
            hello += message if kind == b"S" else b""
        with self._changed:
            self._ends.add(end)
        return _Session(line, hello)

    def _give_back(self, wanted: bytes, session: _Session) -> None:
        with self._changed:
            self._idle[wanted].append(session)
            self._changed.notify_all()

    def _lose(self, wanted: bytes, session: _Session) -> None:
        session.line.end.close()
        with self._changed:
            self._made[wanted] -= 1
            self._changed.notify_all()

    def _transact(self, client: _Line, wanted: bytes, kind: bytes, message: bytes) -> None:
        """Pass messages on in both directions, until the server is ready and not within a transaction."""
        session = self._borrow(wanted)
        server = session.line
        try:
            self.served += 1
            server.end.sendall(message)
            left = int(kind in _ASKS)
            while True:
                ends = [line.end for line in (client, server)]
                ready = [line.end for line in (client, server) if line.waiting()] or select.select(ends, [], [])[0]
                if server.end in ready:
                    kind, message = server.message()
                    client.end.sendall(message)
                    left -= int(kind == b"Z")
                    if kind == b"Z" and left == 0 and message[-1:] == _IDLE:
                        break
                if client.end in ready:
                    kind, message = client.message()
                    if kind == b"X":
                        raise ConnectionError("the client left its transaction")
                    server.end.sendall(message)
                    left += int(kind in _ASKS)
        except OSError:
            self._lose(wanted, session)
            raise
        self._give_back(wanted, session)

    def close(self) -> None:
        """End every connection and stop listening."""
        with self._changed:
            for end in (self._listener, *self._ends):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def __enter__(self) -> Pooler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
