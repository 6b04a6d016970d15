"""A world outside the libraries: agents call it, it remembers what they did, and kills or stops them at a word.

    def work():                                    # runs in a process of its own
        say("begin:pay")                           # note that this line was reached
        receipt = do("charge", "trip-7")           # change the world
        return receipt

    with Outside() as outside:
        ended = outside.live(work, Fault("do:charge"))     # killed when the charge is made, before the answer
        assert (ended.how, outside.done) == ("killed", ["charge"])

A word is answered before the process goes on, so what the world has heard is in the order in which it happened, and a
fault strikes exactly there: nothing waits by sleeping. Processes are forked: call it from a process without threads.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn, Self

How = Literal["returned", "raised", "killed", "stopped", "stuck"]
_PATIENCE = 60.0
LATE = "late"


class _Count:
    """Counts a word, or any that begins so (`do` counts `do:charge`), from the word `after` on."""

    def __init__(self, word: str, nth: int, after: str) -> None:
        self._word, self._left, self._after = word, nth, after

    def meets(self, word: str) -> bool:
        """Whether the n-th is this one."""
        if not self._after and (word == self._word or word.startswith(f"{self._word}:")):
            self._left -= 1
            return self._left == 0
        if word == self._after:
            self._after = ""
        return False


@dataclass
class Fault:
    """Strikes once, when a word is heard for the n-th time: `"do:charge"`, or `"do"` for any that begins so.

    `signal=None` strikes with an answer instead: `do` raises a TimeoutError, although the thing was done. `seconds`
    kills after so much time instead, wherever the process is then. Given to several processes, one after the other, it
    counts over all of them.
    """

    word: str = ""
    nth: int = 1
    after: str = ""
    signal: signal.Signals | None = signal.SIGKILL
    seconds: float | None = None
    struck: bool = False

    def __post_init__(self) -> None:
        self._count = _Count(self.word, self.nth, self.after)

    def hits(self, word: str) -> bool:
        """Whether it strikes at this word."""
        if not self.struck and self.word:
            self.struck = self._count.meets(word)
            return self.struck
        return False

    def left(self) -> float:
        """Seconds until it strikes."""
        return math.inf if self.seconds is None or self.struck else max(0.0, self.seconds)

    def pass_by(self, seconds: float) -> bool:
        """So much time has passed: whether it strikes now."""
        if self.seconds is None or self.struck:
            return False
        self.seconds -= seconds
        self.struck = self.seconds <= 0
        return self.struck


@dataclass
class Order:
    """Whoever says `word` is answered when `until` has been heard n times after `after`, or when a fault has struck.

    So two things that run side by side take one order.
    """

    word: str
    until: str
    nth: int = 1
    after: str = ""
    met: bool = False

    def __post_init__(self) -> None:
        self._count = _Count(self.until, self.nth, self.after)

    def hear(self, word: str) -> None:
        self.met = self.met or self._count.meets(word)


class Heard(NamedTuple):
    """A word that process number `process` has said; `about` is what came with it."""

    process: int
    word: str
    about: str = ""


class Ended(NamedTuple):
    """How a process ended: `value` is what it returned, or the traceback of what it raised."""

    how: How
    value: Any = None


@dataclass
class Process:
    """A living process of `Outside.start`."""

    number: int
    pid: int
    life: int
    fault: Fault | None
    lines: list[socket.socket] = field(default_factory=list)
    held: list[tuple[socket.socket, str]] = field(default_factory=list)
    ended: Ended | None = None


class Outside:
    """The world. `heard` is all that was said, in order; `done` what was done, as often as it was.

    `free` tells whether the database is not locked, when a process has been stopped: else it is stopped a bit later.
    """

    def __init__(
        self, orders: Sequence[Order] = (), *, free: Callable[[], bool] = lambda: True, patience: float = _PATIENCE
    ) -> None:
        self._free = free
        self._orders = orders
        self._folder = tempfile.TemporaryDirectory(prefix="clew-outside-")
        self._patience = patience
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(self._address)
        self._door.listen(64)
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(self._door, selectors.EVENT_READ)
        self._processes: list[Process] = []
        self.heard: list[Heard] = []

    @property
    def _address(self) -> str:
        return str(Path(self._folder.name) / "door")

    @property
    def done(self) -> list[str]:
        return [heard.word.removeprefix("do:") for heard in self.heard if heard.word.startswith("do:")]

    @property
    def output(self) -> str:
        """What the processes have printed."""
        path = Path(self._folder.name) / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def lived(self) -> int:
        """How many processes there were."""
        return len(self._processes)

    def words(self) -> list[str]:
        return [heard.word for heard in self.heard]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes:
            if process.ended is None or process.ended.how == "stopped":
                self._end(process, "killed")
        self._waiting.close()
        self._door.close()
        self._folder.cleanup()

    # -- processes

    def live(self, work: Callable[[], Any], fault: Fault | None = None) -> Ended:
        """Run `work` in a process of its own until it ends, or the fault strikes."""
        return self.wait(self.start(work, fault))

    def start(self, work: Callable[[], Any], fault: Fault | None = None) -> Process:
        """Begin such a process. It gets its answers while somebody waits for one."""
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, if there are threads
            pid = os.fork()
        if pid == 0:
            self._be(work)
        process = Process(len(self._processes) + 1, pid, os.pidfd_open(pid), fault)
        self._waiting.register(process.life, selectors.EVENT_READ, process)
        self._processes.append(process)
        return process

    def wait(self, process: Process) -> Ended:
        """Serve all of them until this one has ended or was stopped."""
        now = time.monotonic()
        until = now + self._patience
        fault = process.fault or Fault()
        while process.ended is None:
            for key, _ in self._waiting.select(min(max(0.0, until - now), fault.left())):
                if isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() < 0:
                    continue  # closed by what came before it
                if key.fileobj is self._door:
                    line, _ = self._door.accept()
                    self._waiting.register(line, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self._listen(key.fileobj)
                elif key.data.ended is None:
                    self._end(key.data, "killed")
            before, now = now, time.monotonic()
            self._look_at_clock(process, fault.pass_by(now - before), now >= until)
        return process.ended

    def _look_at_clock(self, process: Process, strike: bool, stuck: bool) -> None:  # noqa: FBT001
        if process.ended is not None:
            return
        if strike:
            self._orders = ()
            self._end(process, "killed")
        elif stuck:
            self._end(process, "stuck")

    def go_on(self, process: Process) -> Ended:
        """Let a process that was stopped go on, to its end."""
        process.ended = None
        os.kill(process.pid, signal.SIGCONT)
        self._release(process)
        return self.wait(process)

    def _be(self, work: Callable[[], Any]) -> NoReturn:
        """What the child does."""
        global _line  # noqa: PLW0603 - one world for each process
        try:
            self._door.close()
            output = os.open(Path(self._folder.name) / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            _line = _Line(self._address)
            try:
                _line.say("returned", work())
            except BaseException:  # noqa: BLE001 - the parent tells it
                _line.say("raised", traceback.format_exc())
        finally:
            os._exit(0)

    # -- words

    def _listen(self, line: socket.socket) -> None:
        try:
            said = line.recv(1 << 16)
            while said and not said.endswith(b"\n"):
                said += line.recv(1 << 16)
        except ConnectionError:
            said = b""
        if not said:
            self._hang_up(line)
            return
        pid, word, about = json.loads(said)
        process = next(each for each in self._processes if each.pid == pid)
        if line not in process.lines:
            process.lines.append(line)
        if word in ("returned", "raised"):
            self._answer(line, "")
            self._over(process, Ended(word, about))
            return
        self.heard.append(Heard(process.number, word, about))
        self._meet(process, line, word)

    def _meet(self, process: Process, line: socket.socket, word: str) -> None:
        for order in self._orders:
            order.hear(word)
        fault = process.fault
        if fault is not None and fault.hits(word):
            self._strike(process, line, word, fault.signal)
        elif any(order.word == word and not order.met for order in self._orders):
            process.held.append((line, word))
        else:
            self._answer(line, reply(word))
        if fault is not None and fault.struck:
            self._orders = ()
        for other in self._processes:
            if other.ended is None:
                self._release(other)

    def _strike(self, process: Process, line: socket.socket, word: str, how: signal.Signals | None) -> None:
        if how == signal.SIGKILL:
            self._end(process, "killed")
        elif how is None:
            self._answer(line, LATE)
        else:
            self._pause(process, how)
            process.ended = Ended("stopped")
            process.held.append((line, word))

    def _pause(self, process: Process, how: signal.Signals) -> None:
        """Stop it where it holds nothing that others need: its other threads may be in the middle of something."""
        while True:
            os.kill(process.pid, how)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            if self._free():
                return
            os.kill(process.pid, signal.SIGCONT)

    def _release(self, process: Process) -> None:
        """Answer those that nothing holds any more."""
        waiting = {order.word for order in self._orders if not order.met}
        held, process.held = process.held, []
        for line, word in held:
            if word in waiting:
                process.held.append((line, word))
            else:
                self._answer(line, reply(word))

    def _answer(self, line: socket.socket, text: str) -> bool:
        try:
            line.sendall(json.dumps(text).encode() + b"\n")
        except OSError:
            return False
        return True

    def _hang_up(self, line: socket.socket) -> None:
        self._waiting.unregister(line)
        line.close()
        for process in self._processes:
            if line in process.lines:
                process.lines.remove(line)

    def _end(self, process: Process, how: How) -> None:
        os.kill(process.pid, signal.SIGKILL)
        self._over(process, Ended(how))

    def _over(self, process: Process, ended: Ended) -> None:
        os.waitpid(process.pid, 0)
        self._waiting.unregister(process.life)
        os.close(process.life)
        process.ended = ended
        for line in process.lines:
            self._waiting.unregister(line)
            line.close()
        process.lines.clear()


def reply(word: str) -> str:
    """What the world answers: it follows from the word."""
    return f"answer to {word}"


# -- in the processes


class _Line(threading.local):
    """A thread's connection to the world."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._answers = self._socket.makefile("rb")

    def say(self, word: str, about: Any) -> str:
        self._socket.sendall(json.dumps([os.getpid(), word, about]).encode() + b"\n")
        answer = self._answers.readline()
        if not answer:
            os._exit(1)  # the world is gone
        return str(json.loads(answer))


_line: _Line | None = None


def say(word: str, about: str = "") -> str:
    """Tell the world where this process is; returns its answer. Nobody listens outside of `Outside.live`."""
    return reply(word) if _line is None else _line.say(word, about)


def do(what: str, about: str = "") -> str:
    """Change the world; returns its receipt. Not idempotent: what is done twice is done twice."""
    receipt = say(f"do:{what}", about)
    if receipt == LATE:
        raise TimeoutError(f"no answer to {what}")
    return receipt
