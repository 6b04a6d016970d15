"""One trial: the agent is run, struck once, and brought to its end by all that its library offers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.faults.agent import CALLS, EFFECTS, NODES
from clew.testing.outside import Ended, Fault, Heard, Order, Outside, say

_MOST = 8
"""Processes in a trial."""


class Contender(Protocol):
    """A library with the agent. Each method runs in a process of its own; `place` is a directory."""

    @property
    def name(self) -> str: ...
    @property
    def finds(self) -> str:
        """Who finds an interrupted run after a crash."""
        ...

    @property
    def notes(self) -> int:
        """Commits from the moment that the flight is booked until its node is finished, with nothing beside it."""
        ...

    def prepare(self, place: str) -> None:
        """Make the tables."""
        ...

    def free(self, place: str) -> bool:
        """Whether nobody holds a lock on the database. Called in the process that drives the trial."""
        ...

    def restart(self, place: str) -> str:
        """The program begins again, told of no run. What became of it, or "nobody", if the library looks for none."""
        ...

    def go(self, place: str, *, retry: bool = False) -> str:
        """Begin the run, or let it go on: "waiting", "done", "asks" or "running"."""
        ...

    def answer(self, place: str, *, retry: bool = False) -> str:
        """Answer the question, and say so."""
        ...

    def final(self, place: str) -> Any: ...


@dataclass
class Verdict:
    """What a trial came to."""

    struck: bool = False
    asked: bool = False
    """Whether a person was asked what had become of an effect."""
    nobody: bool = False
    """Whether an accepted run could have gone on, and lay there until somebody named it."""
    stuck: str = ""
    lost: str = ""
    nodes_again: list[str] = field(default_factory=list)
    calls_again: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    """The words until the process was struck."""
    processes: int = 0

    def told(self) -> list[str]:
        """What is wrong, in a few words each; `asked` is not wrong."""
        return [
            *([f"stuck: {self.stuck}"] if self.stuck else []),
            *(["lost"] if self.lost else []),
            *(f"{what} done twice" for what in self.twice),
            *(f"{what} never" for what in self.never),
            *(f"node {what} again" for what in self.nodes_again),
            *(f"call {what} again" for what in self.calls_again),
        ]


class Trial:
    """`expected` is the final state of the undisturbed run; None for that run itself. `within` is where files go."""

    def __init__(
        self,
        contender: Contender,
        fault: Fault | None,
        expected: Any = None,
        *,
        retry: bool = False,
        within: Path | None = None,
    ) -> None:
        self.contender = contender
        self.fault = fault
        self.expected = expected
        self.retry = retry
        self.within = within
        self.final: Any = None
        self._unfound = 0
        """The number of the process that was started again and found no run."""

    def run(self) -> Verdict:
        with (
            tempfile.TemporaryDirectory(prefix="clew-faults-", dir=self.within) as place,
            Outside(self._orders(), free=partial(self.contender.free, place)) as outside,
        ):
            self._live(outside, partial(self.contender.prepare, place), None)
            verdict = Verdict()
            for status in self._processes(outside, place, verdict):
                if status.startswith("stuck"):
                    verdict.stuck = status
                    break
            else:
                self.final = self._live(outside, partial(self.contender.final, place), None).value
                verdict.lost = "" if self.expected in (None, self.final) else f"{self.final} for {self.expected}"
            verdict.processes = outside.lived
            self._judge(outside, verdict)
            return verdict

    def _orders(self) -> list[Order]:
        """The flight is booked when hotel has begun, noted before hotel goes on; an answer is kept before paying."""
        return [
            Order("about:flight", "begin:hotel"),
            Order("begin:hotel", "stored", self.contender.notes, after="answered:flight"),
            Order("about:charge", "stored", after="answering"),
        ]

    def _live(self, outside: Outside, work: Callable[[], Any], fault: Fault | None) -> Ended:
        return self._fine(outside, outside.live(work, fault), fault)

    def _fine(self, outside: Outside, ended: Ended, fault: Fault | None) -> Ended:
        if ended.how in ("raised", "stuck") or (fault is None and ended.how != "returned"):
            raise RuntimeError(f"{self.contender.name}: {ended.how}\n{ended.value}\n{outside.output[-4000:]}")
        return ended

    def _processes(self, outside: Outside, place: str, verdict: Verdict) -> Iterator[str]:
        """What each process came to, until the run is done."""
        answering, stopped = False, None
        for _ in range(_MOST):
            work: Callable[[], str] = partial(self.contender.go, place, retry=self.retry)
            if answering:
                work = partial(self.contender.answer, place, retry=self.retry)
            process = outside.start(partial(_tell, work), self.fault)
            ended = self._fine(outside, outside.wait(process), self.fault)
            verdict.struck = self.fault is not None and self.fault.struck
            if ended.how in ("killed", "stopped"):
                verdict.before = outside.words()
                stopped = process if ended.how == "stopped" else None
                answering = False
                status = self._restart(outside, place)
            else:
                status = str(ended.value)
                if answering:
                    (Path(place) / "answered").touch()
            if stopped is not None and status in ("asks", "done"):
                outside.go_on(stopped)  # whatever it comes to: it was taken for dead
                stopped = None
            if status == "asks":
                verdict.asked = True
                self._live(outside, partial(self._settle, place, outside.done), None)
            answering = status == "waiting"
            yield status
            if status == "done":
                return
        yield f"stuck after {_MOST} processes"

    def _settle(self, place: str, done: list[str]) -> None:
        """A person looks at the outside world, and tells what is true."""
        settle: Callable[[str, list[str]], None] = self.contender.settle  # type: ignore[attr-defined]
        settle(place, done)

    def _restart(self, outside: Outside, place: str) -> str:
        """The program is started again, but nobody names the run."""
        if "begin:plan" not in outside.words():
            return "running"
        status = str(self._live(outside, partial(_tell, partial(self.contender.restart, place)), None).value)
        if status == "nobody":
            self._unfound = outside.lived
        return status

    def _lay_there(self, heard: list[Heard], *, answering: bool) -> bool:
        """Whether what was not found could go on: nodes began as soon as it was named, or answered once more."""
        if not self._unfound:
            return False
        return any(
            word.startswith("begin:") and (process == self._unfound + 1 or (answering and process > self._unfound))
            for process, word, _ in heard
        )

    def _judge(self, outside: Outside, verdict: Verdict) -> None:
        words = verdict.words = outside.words()
        verdict.nobody = self._lay_there(outside.heard, answering="answering" in verdict.before)
        known = set(finished(outside.heard, self.contender.notes))
        for node in NODES:
            begun = [at for at, word in enumerate(words) if word == f"begin:{node}"]
            verdict.nodes_again += [node] * any((node, at) in known for at in begun)
        for call in CALLS:
            got = words.index(f"got:{call}") if f"got:{call}" in words else len(words)
            verdict.calls_again += [call] * (f"call:{call}" in words[got:])
        for effect in EFFECTS:
            count = words.count(f"do:{effect}")
            verdict.twice += [effect] * (count > 1)
            verdict.never += [effect] * (count == 0 and not verdict.stuck)


def _tell(work: Callable[[], str]) -> str:
    status = work()
    if status in ("waiting", "done"):
        say("waiting" if status == "waiting" else "over")
    return status


def finished(heard: list[Heard], notes: int) -> Iterator[tuple[str, int]]:
    """(node, index) for each word `begin:node` at which the node was known to be finished, and was not to begin again.

    A node is finished when what follows it has begun, or when the caller of the run was told so: waiting, or over. The
    flight is so after as many commits as it takes, because nothing went on beside it.
    """
    done: set[str] = set()
    ended: set[str] = set()
    commits, within = 0, 0
    for at, (process, word, _) in enumerate(heard):
        kind, _, name = word.partition(":")
        if kind == "begin":
            if name in done:
                yield name, at
            if name in ("flight", "hotel"):
                done.add("plan")
        elif kind == "end":
            ended.add(name)
        elif word == "answered:flight":
            commits, within = 0, process
        elif kind == "stored" and process == within:
            commits += 1
            done |= ended & {"flight"} if commits == notes else set()
        elif word in ("waiting", "over"):
            done |= ended - ({"hotel"} if word == "waiting" else set())
