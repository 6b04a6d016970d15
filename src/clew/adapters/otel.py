"""OpenTelemetry: spans for runs, nodes, calls and effects, and metrics. `instrument()` begins, its result ends it.

One run is one trace, however many processes carry it on (docs/design/telemetry.md).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Self

import clew
from clew import observing
from clew.errors import BadInput
from clew.observing import Fact, Kind

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics
    from opentelemetry import trace as traces
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise BadInput("clew.adapters.otel needs OpenTelemetry", hint='pip install "clew[otel]"') from error

_NAMES = {
    "tenant": "clew.tenant",
    "thread": "clew.thread.id",
    "branch": "clew.branch",
    "run": "clew.run.id",
    "agent": "clew.agent",
    "node": "clew.node",
    "attempt": "clew.attempt",
    "recorded": "clew.recorded",
}
_KINDS = {"start": SpanKind.PRODUCER, "run": SpanKind.CONSUMER}
_TIMED = ("run", "node", "call", "effect")
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_LONGEST_TRACE = 1024
_propagator = TraceContextTextMapPropagator()
_place: ContextVar[None] = ContextVar("clew_otel", default=None)
"""Tells a span whether it ends where it began."""


def instrument(
    *databases: clew.Database,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Telemetry:
    """Make spans and metrics of what this process does from now on, until `remove()` is called on the result.

    The providers are OpenTelemetry's global ones, if none are given. What waits in the `databases` is counted whenever
    metrics are exported.
    """
    for db in databases:
        if not isinstance(db, clew.Database):
            raise BadInput(f"{db!r:.60} is no database", hint='instrument(clew.open("agent.db"))')
    return Telemetry(
        databases,
        traces.get_tracer_provider() if tracer_provider is None else tracer_provider,
        metrics.get_meter_provider() if meter_provider is None else meter_provider,
    )


class Telemetry:
    """OpenTelemetry watching Clew. A context manager; `remove` ends it."""

    def __init__(
        self, databases: Sequence[clew.Database], tracer_provider: TracerProvider, meter_provider: MeterProvider
    ) -> None:
        version = str(clew.__version__)
        self._tracer = tracer_provider.get_tracer("clew", version)
        meter = meter_provider.get_meter("clew", version)
        self._durations = {
            kind: meter.create_histogram(
                f"clew.{kind}.duration", "s", f"Time of one {kind}", explicit_bucket_boundaries_advisory=_SECONDS
            )
            for kind in _TIMED
        }
        self._commits = meter.create_histogram(
            "clew.commit.duration", "s", "Time of one commit", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._bytes = meter.create_counter("clew.commit.size", "By", "Bytes that commits have brought")
        meter.create_observable_gauge("clew.run.active", [self._active], "{run}", "Runs that this process drives")
        meter.create_observable_gauge("clew.lease.age", [self._age], "s", "The longest held lease of a run here")
        if databases:
            gauge = meter.create_observable_gauge
            gauge("clew.queue.depth", [partial(_waiting, databases)], "{run}", "Runs, but for those that are over")
            gauge("clew.queue.due", [partial(_due, databases)], "{run}", "Runs that could go on now, or were left")
            gauge("clew.requests.open", [partial(_asked, databases)], "{request}", "Open requests")
        self._held: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._remove: Callable[[], None] | None = observing.observe(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Observe no more."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    # -- as an observer

    def span(self, kind: Kind, name: str, facts: Mapping[str, Fact], trace: str | None) -> observing.Span:
        return _Span(self, kind, name, facts, trace)

    def committed(self, seconds: float, size: int, kind: str) -> None:
        self._commits.record(seconds, {"clew.kind": kind})
        self._bytes.add(size, {"clew.kind": kind})

    # -- measured at an export

    def _active(self, _: CallbackOptions) -> Iterable[Observation]:
        found: dict[str, int] = {}
        with self._lock:
            for agent, _began in self._held.values():
                found[agent] = found.get(agent, 0) + 1
        return [Observation(count, {"clew.agent": agent}) for agent, count in found.items()]

    def _age(self, _: CallbackOptions) -> Iterable[Observation]:
        now = time.monotonic()
        with self._lock:
            oldest = min((began for _, began in self._held.values()), default=now)
        return [Observation(now - oldest)]

    # -- for spans

    def began(self, span: _Span) -> None:
        if span.kind == "run":
            with self._lock:
                self._held[id(span)] = (span.name, span.began)

    def ended(self, span: _Span, outcome: str) -> None:
        if span.kind == "run":
            with self._lock:
                self._held.pop(id(span), None)
        histogram = self._durations.get(span.kind)
        if histogram is not None:
            histogram.record(time.monotonic() - span.began, {**span.labels, "clew.outcome": outcome})


class _Span:
    """One span of OpenTelemetry, current while its block lasts."""

    trace: str | None = None

    def __init__(
        self, telemetry: Telemetry, kind: Kind, name: str, facts: Mapping[str, Fact], trace: str | None
    ) -> None:
        self.kind = kind
        self.name = name
        self.began = 0.0
        self._telemetry = telemetry
        self._facts = facts
        self._parent = trace
        self._outcome: str | None = None
        self._error: BaseException | None = None

    @property
    def labels(self) -> dict[str, str | bool]:
        """What its metrics are told apart by: names that the program has, and no ids."""
        told: dict[str, str | bool] = {"clew.agent": str(self._facts["agent"])} if "agent" in self._facts else {}
        if self.kind == "node":
            told["clew.node"] = self.name
        elif self.kind != "run":
            told["clew.name"] = self.name
        if self.kind == "call":
            told["clew.recorded"] = bool(self._facts.get("recorded"))
        return told

    def __enter__(self) -> Self:
        here = traces.get_current_span().get_span_context()
        parent, links = None, []
        if self._parent is not None:
            parent = _context_of(self._parent)
            origin = traces.get_current_span(parent).get_span_context()
            if here.is_valid and here.trace_id != origin.trace_id:
                links.append(Link(here))
        attributes = {
            _NAMES.get(fact, f"clew.{fact}"): value for fact, value in self._facts.items() if value is not None
        }
        if self.kind in ("start", "run"):
            attributes |= {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self.name,
                "gen_ai.conversation.id": self._facts.get("thread") or "",
            }
        span = self._telemetry._tracer.start_span(
            f"{self.kind} {self.name}",
            parent,
            kind=_KINDS.get(self.kind, SpanKind.INTERNAL),
            attributes=attributes,
            links=links,
        )
        self._span = span
        self._token = contexts.attach(traces.set_span_in_context(span))
        self._place = _place.set(None)
        self.began = time.monotonic()
        if self.kind == "start":
            self.trace = _text_of()
        self._telemetry.began(self)
        return self

    def ends(self, outcome: str, error: BaseException | None = None) -> None:
        self._outcome = outcome
        self._error = error

    def stand(self) -> None:
        contexts.attach(traces.set_span_in_context(self._span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        error = self._error or (error if isinstance(error, Exception) else None)
        outcome = self._outcome or ("done" if kind is None else "failed" if error is not None else "interrupted")
        self._span.set_attribute("clew.outcome", outcome)
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        try:
            _place.reset(self._place)
        except ValueError:
            pass  # it ends in another context than it began in, which went with its task
        else:
            contexts.detach(self._token)
        self._span.end()
        self._telemetry.ended(self, outcome)


def _waiting(databases: Sequence[clew.Database], _: CallbackOptions) -> Iterator[Observation]:
    for db in databases:
        for status, count in db.overview().runs.items():
            yield Observation(count, {"clew.tenant": db.tenant_name, "clew.status": status})


def _due(databases: Sequence[clew.Database], _: CallbackOptions) -> Iterator[Observation]:
    for db in databases:
        found = db.overview()
        yield Observation(found.due, {"clew.tenant": db.tenant_name, "clew.left": False})
        yield Observation(found.left, {"clew.tenant": db.tenant_name, "clew.left": True})


def _asked(databases: Sequence[clew.Database], _: CallbackOptions) -> Iterator[Observation]:
    for db in databases:
        yield Observation(db.overview().requests, {"clew.tenant": db.tenant_name})


def _text_of() -> str | None:
    """The current span, as kept with a run's row."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    text = json.dumps(carrier, separators=(",", ":"))
    if len(text) > _LONGEST_TRACE:
        text = json.dumps({"traceparent": carrier["traceparent"]}, separators=(",", ":"))
    return text if carrier else None


def _context_of(text: str) -> contexts.Context:
    """What was kept, to go on from; an empty context when it says nothing."""
    try:
        stored = json.loads(text)
    except ValueError:
        stored = None
    carrier = stored.items() if isinstance(stored, dict) else ()
    return _propagator.extract({name: value for name, value in carrier if isinstance(value, str)}, contexts.Context())
