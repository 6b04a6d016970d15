"""Who this process is, and whether another process that holds a lease still lives.

A process of the same boot and PID namespace can be looked up, so a dead one is known at once. Of any other only the
silence can be judged: an owner whose row has expired has lost its leases. So has a living one that is silent too long.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakMethod

EXPIRY = 10.0
"""Seconds of silence after which a lease passes on."""
BEAT = 3.0
"""Seconds between two signs of life."""
_IDLE_BEATS = 10


class Identity(NamedTuple):
    """One process, as other processes can recognise it. `nonce` tells two openings in one process apart."""

    host: str
    boot: str
    pidns: int
    pid: int
    started: int
    nonce: str


class OwnerRow(NamedTuple):
    """A stored owner; `remaining` is the time until it expires, in nanoseconds of the database's clock."""

    owner: int
    host: str
    boot: str
    pidns: int
    pid: int
    started: int
    nonce: str
    remaining: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Identity:
    """The calling process. Without /proc, the boot is unknown and a process is known by its number alone."""
    pid = os.getpid()
    return Identity(socket.gethostname(), boot_id(), _pid_namespace(), pid, start_time(pid) or 0, secrets.token_hex(8))


def boot_id() -> str:
    """Names the running boot of this machine; "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none, 0 when the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _exists(pid)
    except ProcessLookupError:
        return None
    except OSError:
        return _exists(pid)
    # The name in parentheses may hold anything, so count the fields after the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _exists(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def clock() -> int:
    """Nanoseconds of a clock that never goes back while this boot lasts, also through a suspend where there is one."""
    if _BOOT_CLOCK is None:
        return time.time_ns()
    return time.clock_gettime_ns(_BOOT_CLOCK)


# Without a boot id a clock that starts anew at each boot could make an old lease last for ever.
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None) if boot_id() else None


def is_live(row: OwnerRow, me: Identity, *, boot_clock: bool) -> bool:
    """Whether the owner still holds its leases. With `boot_clock` its expiry means nothing in another boot."""
    if row.boot == me.boot and row.pidns == me.pidns and row.host == me.host:
        itself = row.pid == me.pid and row.started == me.started
        started = row.started if itself else start_time(row.pid)
        if started is None or (started and row.started and started != row.started):
            return False
    elif boot_clock and row.boot != me.boot:
        return False
    return row.remaining > 0


class Heartbeat:
    """A thread that calls `beat` every few seconds while leases are held, and sleeps without waking when none is."""

    def __init__(self, beat: Callable[[], None], interval: float = BEAT) -> None:
        self._beat = WeakMethod(beat)  # an engine that is dropped without being closed takes its thread with it
        self._interval = interval
        self._condition = threading.Condition()
        self._held = 0
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._sleeping = False

    def hold(self) -> None:
        """One lease more is held."""
        with self._condition:
            self._held += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clew-heartbeat", daemon=True)
                self._thread.start()
            elif self._sleeping:
                self._condition.notify()

    def drop(self) -> None:
        """One lease less is held."""
        with self._condition:
            self._held -= 1

    def stop(self) -> None:
        """End the thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __del__(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        idle = 0
        while True:
            with self._condition:
                # A lease per turn comes and goes: a few idle rounds are cheaper than a wake-up for each.
                self._sleeping = idle >= _IDLE_BEATS
                if not self._stopped:
                    self._condition.wait(None if self._sleeping and not self._held else self._interval)
                self._sleeping = False
                if self._stopped:
                    return
                idle = 0 if self._held else idle + 1
                held = self._held
            beat = self._beat()
            if beat is None:
                return
            if held:
                beat()
            del beat
