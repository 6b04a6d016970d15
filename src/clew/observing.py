"""Being observed: what runs do is told here, to whoever wants to know. By default nobody does, and nothing is made.

Traces and metrics (`clew.adapters.otel`) are observers; log records take their place from `where`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

Kind = Literal["start", "run", "node", "call", "effect"]
Fact = str | int | float | bool | None


class Span(Protocol):
    """Something under way. `trace` names it to other processes, if it can be named."""

    trace: str | None

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def ends(self, outcome: str, error: BaseException | None = None) -> None:
        """How it is about to end. Without this it is done, or has failed of the exception that leaves it."""
        ...

    def stand(self) -> None:
        """What begins next, here, stands below it: for code that it reaches by ways which context variables do not."""
        ...


class Observer(Protocol):
    """Wants to know. It is called on the threads that do the work, so it has to be quick."""

    def span(self, kind: Kind, name: str, facts: Mapping[str, Fact], trace: str | None) -> Span:
        """Something begins. `trace` is what the span of kind "start" of the same run was called."""
        ...

    def committed(self, seconds: float, size: int, kind: str) -> None:
        """A checkpoint was written: how long that took, and how many bytes it brought."""
        ...


class Brought(Protocol):
    """A checkpoint on its way to the database."""

    @property
    def manifest(self) -> bytes: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def blobs(self) -> Sequence[tuple[str, bytes]]: ...


class Where(NamedTuple):
    """What this code runs in."""

    tenant: str
    thread: str
    branch: str
    run: str
    agent: str
    node: str | None = None


where: ContextVar[Where | None] = ContextVar("clew_where", default=None)
observers: tuple[Observer, ...] = ()
log = logging.getLogger("clew")


class _Unobserved:
    """The span that nobody looks at."""

    __slots__ = ()
    trace: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def ends(self, outcome: str, error: BaseException | None = None) -> None:
        pass

    def stand(self) -> None:
        pass


UNOBSERVED: Span = _Unobserved()


class _Spans:
    """One span for each observer. What an observer fails of is logged, and nobody else's trouble."""

    def __init__(self, kind: Kind, name: str, facts: Mapping[str, Fact], trace: str | None) -> None:
        self.trace: str | None = None
        self._spans: list[Span] = []
        for observer in observers:
            with guarded():
                self._spans.append(observer.span(kind, name, facts, trace))

    def __enter__(self) -> Self:
        made, self._spans = self._spans, []
        for span in made:
            with guarded():
                self._spans.append(span.__enter__())
                self.trace = self.trace or span.trace
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for span in reversed(self._spans):
            with guarded():
                span.__exit__(kind, error, trace)

    def ends(self, outcome: str, error: BaseException | None = None) -> None:
        for span in self._spans:
            with guarded():
                span.ends(outcome, error)

    def stand(self) -> None:
        for span in self._spans:
            with guarded():
                span.stand()


@contextmanager
def guarded() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("an observer has failed; what it observes goes on")


def observe(observer: Observer) -> Callable[[], None]:
    """Tell this one too, until the function that is returned is called."""
    global observers  # noqa: PLW0603 - replaced, not changed: whoever tells goes through those there were
    observers = (*observers, observer)

    def stop() -> None:
        global observers  # noqa: PLW0603
        observers = tuple(one for one in observers if one is not observer)

    return stop


def span(kind: Kind, name: str, at: Where | None = None, *, trace: str | None = None, **facts: Fact) -> Span:
    """Tell that something begins, here or `at` another place; the end of the block is its end."""
    if not observers:
        return UNOBSERVED
    at = at or where.get()
    return _Spans(kind, name, {**(at._asdict() if at else {}), **facts}, trace)


def began() -> float:
    """When a commit begins, for `committed`; 0 when nobody wants to know."""
    return time.perf_counter() if observers else 0.0


def committed(began: float, brought: Brought, kind: str) -> None:
    """Tell that a checkpoint was written."""
    if began:
        seconds = time.perf_counter() - began
        size = len(brought.manifest) + len(brought.payload or b"") + sum(len(data) for _, data in brought.blobs)
        for observer in observers:
            with guarded():
                observer.committed(seconds, size, kind)
