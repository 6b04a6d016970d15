"""Telling people of open requests: a command is run for each, and told what is asked."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from clew import references
from clew.errors import BadInput
from clew.model import Notified
from clew.requests import Room, to_request
from clew.storage.ledger import Notice

_SECOND = 1_000_000
_FIRST_DELAY = 10 * _SECOND
_LONGEST_DELAY = 3600 * _SECOND
_LONGEST_TIMEOUT = 3600
_SPARE = 30 * _SECOND
_log = logging.getLogger("clew.notify")


def notify(room: Room, command: Sequence[str], *, limit: int, timeout: float) -> Notified:
    """Run the command for each notice that is due. See `Database.notify`."""
    words = _check_command(command)
    limit = references.check_count(limit, "limit", 1)
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST_TIMEOUT:
        raise BadInput(f"timeout is a number of seconds, at most {_LONGEST_TIMEOUT}, not {timeout!r:.60}")
    room.ledger.expire()
    told = failed = 0
    while told + failed < limit:
        notice = room.ledger.next_notice(hold=int(timeout * _SECOND) + _SPARE)
        if notice is None:
            break
        message = _message(room, notice)
        if message is None:
            room.ledger.told(notice)
            continue
        try:
            problem = _run(words, message, timeout)
        except BaseException:
            room.ledger.not_told(notice, delay=0)
            raise
        if problem is None:
            room.ledger.told(notice)
            told += 1
        else:
            delay = min(_FIRST_DELAY << min(notice.attempts - 1, 20), _LONGEST_DELAY)
            room.ledger.not_told(notice, delay=delay)
            _log.warning("R-%d was not told: %s %s; again in %d s", notice.number, words[0], problem, delay // _SECOND)
            failed += 1
    return Notified(told, failed)


def _message(room: Room, notice: Notice) -> bytes | None:
    """What the command is told; None when there is nothing left to be told."""
    row = room.ledger.request(notice.number)
    if row is None or row.status != "open":
        return None
    request = to_request(room, row).as_json()
    told: dict[str, Any] = {"event": notice.event, "attempt": notice.attempts, "tenant": room.tenant, **request}
    return json.dumps(told).encode() + b"\n"


def _run(words: list[str], message: bytes, timeout: float) -> str | None:
    """Run the command, without a shell. What went wrong, if it did."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the caller's own command, and nothing of the request in it
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    try:
        process.communicate(message, timeout)
    except subprocess.TimeoutExpired:
        return f"took longer than {timeout:g} s"
    finally:
        _end(process)
    return None if process.returncode == 0 else f"ended with {process.returncode}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it behind that still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _check_command(command: Any) -> list[str]:
    if isinstance(command, str) or not isinstance(command, Sequence) or not command:
        raise BadInput(
            f"a command is a list of words, not {command!r:.60}", hint='for example ["notify-send", "--wait"]; no shell'
        )
    words = list(command)
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise BadInput(f"a command is a list of words, not {command!r:.60}")
    if shutil.which(words[0]) is None:
        raise BadInput(
            f"there is no command {words[0]!r}", hint="name a program that can be run, by its path if need be"
        )
    return words
