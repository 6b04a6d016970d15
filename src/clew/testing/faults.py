"""Tools to break a database with: a disk that fails or forgets, a child to kill, an interruption at any line.

    def work(tell):
        Disk(kill_at(7)).install()                # the process dies at the 7th call that changes a file
        thread = clew.open("agent.db").thread("t")
        for number in range(10):
            tell(thread.save({"number": number}).step)

    died = in_child(work)                         # died.told: the steps that were acknowledged

Everything works with nothing but Python and `apsw`. A `Disk` stands below SQLite and stays the default of its process:
install it in a child.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import apsw

_SECTOR = 512
_BASE = apsw.vfs_names()[0]


class Call(NamedTuple):
    """Something that SQLite is about to ask of the disk. `offset` of a truncation is the file's new size."""

    kind: Literal["write", "sync", "truncate", "delete", "read"]
    path: str
    offset: int = 0
    data: bytes = b""


Before = Callable[[Call], None]


class Disk(apsw.VFS):  # type: ignore[misc,unused-ignore]
    """A disk that tells each call to `before` ahead of doing it. What that raises, SQLite gets as the disk's answer."""

    def __init__(self, before: Before, *, reads: bool = False) -> None:
        self.before = before
        self.reads = reads
        super().__init__("faults", _BASE, makedefault=True)

    def install(self) -> Disk:
        """Becomes the default for every connection opened from now on; returns itself, which must be kept alive."""
        _installed.append(self)
        sys.unraisablehook = lambda _: None  # a fault in a callback that cannot fail is not the test's business
        return self

    def xOpen(self, name: Any, flags: Any) -> _File:  # noqa: N802 - the names are SQLite's
        return _File(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802, FBT001
        self.before(Call("delete", name))
        super().xDelete(name, sync)


_installed: list[Disk] = []


class _File(apsw.VFSFile):  # type: ignore[misc,unused-ignore]
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        self._disk = disk
        self._path = str(name.filename() if hasattr(name, "filename") else name or "")
        super().__init__(_BASE, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._disk.reads:
            self._disk.before(Call("read", self._path, offset))
        data: bytes = super().xRead(amount, offset)
        return data

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.before(Call("write", self._path, offset, bytes(data)))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.before(Call("sync", self._path))
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.before(Call("truncate", self._path, size))
        super().xTruncate(size)


def kill_at(number: int) -> Before:
    """End this process by SIGKILL at the n-th call."""
    left = number

    def before(_: Call) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


class FailAt:
    """Let the n-th call after `arm(n)` fail, once or from then on; `met` tells whether that call was reached."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error
        self._left = 0
        self._sticky = False
        self.met = False

    def arm(self, number: int, *, sticky: bool = False) -> None:
        self._left, self._sticky, self.met = number, sticky, False

    def lift(self) -> None:
        self._left, self._sticky = 0, False

    def __call__(self, _: Call) -> None:
        if self.met and self._sticky:
            raise self._error()
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self.met = True
                raise self._error()


# -- power loss


class Platter:
    """What a disk may hold when the power goes: what was synced, and of the rest any part, also halves of writes."""

    def __init__(self) -> None:
        self.stable: dict[str, bytearray] = {}
        self.loose: dict[str, list[Call]] = {}

    def feed(self, call: Call) -> None:
        """One more call reaches the disk."""
        if call.kind == "delete":
            self.stable.pop(call.path, None)
            self.loose.pop(call.path, None)
        elif call.kind == "sync":
            content = self.stable.setdefault(call.path, bytearray())
            for change in self.loose.pop(call.path, ()):
                _apply(content, change)
        elif call.kind != "read":
            self.loose.setdefault(call.path, []).append(call)

    def as_written(self) -> dict[str, bytes]:
        """The files as a kill leaves them: the system keeps what was written, synced or not."""
        return self._image(lambda _: 1.0)

    def images(self, chance: random.Random, more: int) -> Iterator[dict[str, bytes]]:
        """What there is without and with all loose calls, then `more` with some of them, torn or whole."""
        yield self._image(lambda _: 0.0)
        if any(self.loose.values()):
            yield self.as_written()
            for _ in range(more):
                taken = chance.random()
                yield self._image(lambda _, taken=taken: _fate(chance, taken))  # type: ignore[misc]

    def _image(self, fate: Callable[[Call], float]) -> dict[str, bytes]:
        files = {path: bytearray(content) for path, content in self.stable.items()}
        for path, calls in self.loose.items():
            content = files.setdefault(path, bytearray())
            for call in calls:
                part = fate(call)
                if part >= 1.0:
                    _apply(content, call)
                elif part > 0.0 and call.kind == "write":
                    kept = int(len(call.data) * part) // _SECTOR * _SECTOR
                    _apply(content, call._replace(data=call.data[:kept]))
        return {path: bytes(content) for path, content in files.items()}


def _fate(chance: random.Random, taken: float) -> float:
    """How much of a loose call reaches the platter: nothing, all, or a torn part."""
    if chance.random() > taken:
        return 0.0
    return chance.random() if chance.random() < 0.1 else 1.0


def _apply(content: bytearray, call: Call) -> None:
    if call.kind == "truncate":
        del content[call.offset :]
        return
    if not call.data:
        return
    if len(content) < call.offset:
        content.extend(bytes(call.offset - len(content)))
    content[call.offset : call.offset + len(call.data)] = call.data


def write_image(image: dict[str, bytes], name: str, to: Path) -> None:
    """Lay the files of the database `name` down under the new name."""
    for suffix in ("", "-wal", "-journal", "-shm"):
        content = image.get(name + suffix)
        path = Path(f"{to}{suffix}")
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)


# -- children


class Outcome(NamedTuple):
    """How a child ended: what it told until then, the signal that killed it, and what it raised (as text)."""

    told: list[Any]
    killed_by: int | None
    raised: str | None


def in_child(work: Callable[[Callable[[Any], None]], None]) -> Outcome:
    """Run `work(tell)` in a forked child, which may be killed. What it tells arrives even then."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, if there are threads
        child = os.fork()
    if child == 0:
        _live(work, lambda value: sender.send(("told", value)), sender)
    sender.close()
    told, raised = [], None
    try:
        while True:
            sort, value = receiver.recv()
            if sort == "told":
                told.append(value)
            else:
                raised = value
    except (EOFError, OSError):
        pass
    finally:
        receiver.close()
    status = os.waitpid(child, 0)[1]
    return Outcome(told, os.WTERMSIG(status) if os.WIFSIGNALED(status) else None, raised)


def _live(work: Callable[[Callable[[Any], None]], None], tell: Callable[[Any], None], sender: Any) -> None:
    try:
        work(tell)
    except BaseException:  # noqa: BLE001 - the parent tells it
        sender.send(("raised", traceback.format_exc()))
    finally:
        os._exit(0)


# -- interruptions


@contextmanager
def at_line(number: int, files: Collection[str], do: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `do` at the n-th line of these files that runs inside the block. Yields a function: was it reached?"""
    left = number

    def local(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                do()
        return local

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        return local if left > 0 and frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left <= 0
    finally:
        sys.settrace(before)


def sources(*modules: Any) -> set[str]:
    """The files of modules, for `at_line`."""
    return {str(module.__file__) for module in modules}


def points(total: int, wanted: int, *, offset: int = 0) -> Sequence[int]:
    """About `wanted` numbers from 1 to `total`, evenly spread; `offset` moves them from run to run."""
    stride = max(1, total // wanted)
    return range(1 + offset % stride, total + 1, stride)
