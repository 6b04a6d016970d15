"""Spans and metrics: what a run tells, and one trace however often it is killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, interrupt
from opentelemetry import trace as traces
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from places import Place
from stories import Log

import clew
from clew import aio, observing
from clew.adapters.langgraph import LangGraphAgent
from clew.adapters.otel import instrument
from clew.testing.faults import in_child


class Told:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    with instrument(tracer_provider=told.tracers, meter_provider=told.meters):
        yield told
    assert observing.observers == ()


@clew.recorded
def model(text: str) -> str:
    with traces.get_tracer("the program's own").start_as_current_span("http"):
        return text.upper()


def make_trip(before_booking: Callable[[], None] = lambda: None) -> clew.Agent:
    trip = clew.Agent("trip")

    @trip.node(start=True, then="book")
    def plan(state: Any) -> Any:
        return {"plan": model(state["city"])}

    @trip.node
    def book(state: Any) -> Any:
        before_booking()
        return {"booked": clew.ask("Book?", schema=bool, id="book")}

    return trip


def children(told: Told, parent: ReadableSpan) -> set[str]:
    assert parent.context is not None
    return {
        span.name for span in told.spans if span.parent is not None and span.parent.span_id == parent.context.span_id
    }


def test_a_run_is_one_trace_over_a_wait(db: clew.Database, told: Told) -> None:
    trip = make_trip()
    run = trip.run(db.thread("t"), {"city": "nara"})
    assert run.status == "waiting"
    start = told.named("start trip")
    assert start.parent is None
    assert children(told, start) == {"run trip"}
    first = told.named("run trip")
    assert children(told, first) == {"node plan", "node book"}
    assert children(told, told.named("node plan")) == {"call model"}
    attributes = dict(first.attributes or {})
    assert attributes == {
        "clew.tenant": "default",
        "clew.thread.id": "t",
        "clew.branch": "main",
        "clew.run.id": run.id,
        "clew.agent": "trip",
        "clew.outcome": "waiting",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "trip",
        "gen_ai.conversation.id": "t",
    }
    assert dict(told.named("node book").attributes or {})["clew.outcome"] == "waiting"
    assert told.named("node book").status.status_code is StatusCode.UNSET

    run.requests[0].answer(True, by="alice")
    told.exporter.clear()
    with told.tracers.get_tracer("web").start_as_current_span("POST /resume") as post:
        assert trip.resume(db.thread("t")).status == "done"
    second = told.named("run trip")
    assert second.context is not None
    assert start.context is not None
    assert second.context.trace_id == start.context.trace_id
    assert second.parent is not None
    assert second.parent.span_id == start.context.span_id
    assert [link.context for link in second.links] == [post.get_span_context()]
    assert children(told, second) == {"node book"}


def test_what_the_program_traces_stands_below_its_node(db: clew.Database, told: Told) -> None:
    """Also when the run is streamed, awaited, and in nodes that run side by side."""
    wide = clew.Agent("wide")

    def own(name: str) -> None:
        told.tracers.get_tracer("own").start_span(name).end()

    @wide.node(start=True)
    def plain(state: Any) -> None:
        own("in plain")

    @wide.node(start=True)
    async def awaited(state: Any) -> None:
        await asyncio.to_thread(own, "in awaited")

    with told.tracers.get_tracer("web").start_as_current_span("POST"):
        assert [event.kind for event in wide.stream(db.thread("t"))][-1] == "end"
    for node in ("plain", "awaited"):
        assert children(told, told.named(f"node {node}")) == {f"in {node}"}
    assert children(told, told.named("POST")) == {"start wide"}
    told.exporter.clear()

    async def main() -> None:
        with told.tracers.get_tracer("web").start_as_current_span("await"):
            async with aio.open("memory:") as awaited:
                await aio.Agent.of(wide).run(awaited.thread("u"))

    asyncio.run(main())
    for node in ("plain", "awaited"):
        assert children(told, told.named(f"node {node}")) == {f"in {node}"}
    assert children(told, told.named("await")) == {"start wide"}


def test_errors_attempts_and_what_the_journal_knew(db: clew.Database, told: Told) -> None:
    shaky = clew.Agent("shaky")
    tries = iter([ValueError("first"), ValueError("second"), None])

    @shaky.node(retry=2)
    def work(state: Any) -> None:
        model("once")
        if (error := next(tries)) is not None:
            raise error

    with pytest.raises(ValueError, match="second"):
        shaky.run(db.thread("t"))
    nodes = [span for span in told.spans if span.name == "node work"]
    assert [dict(span.attributes or {})["clew.attempt"] for span in nodes] == [1, 2]
    for span in nodes:
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
    calls = [dict(span.attributes or {})["clew.recorded"] for span in told.spans if span.name == "call model"]
    assert calls == [False, True]
    failed = told.named("run shaky")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "ValueError: second"
    assert shaky.resume(db.thread("t")).status == "done"
    runs = [span for span in told.spans if span.name == "run shaky"]
    assert [dict(span.attributes or {})["clew.outcome"] for span in runs] == ["failed", "done"]
    assert len({span.context.trace_id for span in told.spans if span.context and span.name != "http"}) == 1


def test_effects_end_done_recorded_or_unknown(db: clew.Database, told: Told) -> None:
    answers: Any = iter(["receipt", ConnectionError("cut"), None])

    @clew.effect(key="charge")
    def charge(amount: int) -> Any:
        return next(answers)

    @clew.effect(key="mail")
    async def mail() -> Any:
        next(answers)
        raise ConnectionError("cut")

    pay = clew.Agent("pay")

    @pay.node
    async def node(state: Any) -> None:
        assert charge(420) == charge(420) == "receipt"
        await mail()

    assert pay.run(db.thread("t")).status == "waiting"
    ends = [
        (span.name, dict(span.attributes or {})["clew.outcome"], span.status.status_code is StatusCode.ERROR)
        for span in told.spans
        if span.name.startswith("effect")
    ]
    assert ends == [
        ("effect charge", "done", False),
        ("effect charge", "recorded", False),
        ("effect mail", "unknown", True),
    ]
    assert {point.attributes["clew.outcome"] for point in told.metrics()["clew.effect.duration"]} == {
        "done",
        "recorded",
        "unknown",
    }


def test_metrics_have_names_and_outcomes_and_no_ids(db: clew.Database, told: Told) -> None:
    trip = make_trip()
    for number in range(3):
        trip.run(db.thread(f"t{number}"), {"city": "nara"})
    found = told.metrics()
    (runs,) = found["clew.run.duration"]
    assert (runs.count, dict(runs.attributes)) == (3, {"clew.agent": "trip", "clew.outcome": "waiting"})
    nodes = {(p.attributes["clew.node"], p.attributes["clew.outcome"]): p.count for p in found["clew.node.duration"]}
    assert nodes == {("plan", "done"): 3, ("book", "waiting"): 3}
    (calls,) = found["clew.call.duration"]
    assert (calls.count, calls.attributes["clew.name"], calls.attributes["clew.recorded"]) == (3, "model", False)
    commits = {point.attributes["clew.kind"]: point.count for point in found["clew.commit.duration"]}
    assert commits == {"input": 3, "step": 3}
    assert all(point.value > 0 for point in found["clew.commit.size"])
    told_of = {value for points in found.values() for point in points for value in point.attributes.values()}
    assert told_of <= {"trip", "waiting", "done", "plan", "book", "model", False, "input", "step"}


def test_the_age_of_a_lease_is_told_while_it_is_held(db: clew.Database, told: Told) -> None:
    seen: list[dict[str, list[Any]]] = []

    @clew.agent
    def look(state: Any) -> None:
        seen.append(told.metrics())

    look.run(db.thread("t"))
    (active,) = seen[0]["clew.run.active"]
    assert (active.value, dict(active.attributes)) == (1, {"clew.agent": "look"})
    assert seen[0]["clew.lease.age"][0].value > 0
    after = told.metrics()
    assert "clew.run.active" not in after
    assert after["clew.lease.age"][0].value == 0


def test_what_waits_in_a_database_is_counted(db: clew.Database) -> None:
    told = Told()
    trip = make_trip()
    with instrument(db, tracer_provider=told.tracers, meter_provider=told.meters):
        for number in range(3):
            trip.run(db.thread(f"t{number}"), {"city": "nara"})
        db.requests()[0].answer(True, by="alice")
        found = told.metrics()
    assert [(point.value, point.attributes["clew.status"]) for point in found["clew.queue.depth"]] == [(3, "waiting")]
    assert {point.attributes["clew.left"]: point.value for point in found["clew.queue.due"]} == {False: 1, True: 0}
    assert [point.value for point in found["clew.requests.open"]] == [2]
    with pytest.raises(clew.errors.BadInput, match="no database"):
        instrument("agent.db")  # type: ignore[arg-type]


def waiting_graph(told: Told, *, awaited: bool) -> LangGraphAgent:
    """Two nodes side by side, one of which asks, and a subgraph after them."""

    def plain(state: Any) -> Any:
        told.tracers.get_tracer("the program's own").start_span("own").end()
        return {"log": [model("nara")]}

    async def waits(state: Any) -> Any:
        return plain(state)

    inner = StateGraph(Log)
    inner.add_node("deep", waits if awaited else plain)
    inner.add_edge(START, "deep")
    builder = StateGraph(Log)
    builder.add_node("plan", waits if awaited else plain)
    builder.add_node("book", lambda state: {"log": [interrupt("Book?")]})
    builder.add_node("inner", inner.compile())
    for node in ("plan", "book"):
        builder.add_edge(START, node)
    builder.add_edge(["plan", "book"], "inner")
    return LangGraphAgent(builder.compile(), name="graph")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_graph_under_a_worker_is_one_trace(db: clew.Database, told: Told, awaited: bool) -> None:
    graph = waiting_graph(told, awaited=awaited)
    run = db.submit(graph, "t", {"log": []})
    clew.Worker(db, graph).run(until_idle=True)
    first = told.named("run graph")
    assert children(told, first) == {"node plan", "node book"}
    assert children(told, told.named("node plan")) == {"own", "call model"}
    assert {name: dict(told.named(f"node {name}").attributes or {})["clew.outcome"] for name in ("plan", "book")} == {
        "plan": "done",
        "book": "waiting",
    }
    run.requests[0].answer("yes", by="alice")
    clew.Worker(db, graph).run(until_idle=True)
    assert run.status == "done"
    second = [span for span in told.spans if span.name == "run graph"][1]
    assert children(told, second) == {"node book", "node inner"}
    assert children(told, told.named("node inner")) == {"node deep"}
    start = told.named("start graph")
    assert start.context is not None
    assert children(told, start) == {"run graph"}
    own = [span for span in told.spans if span.context and span.context.trace_id != start.context.trace_id]
    assert own == []
    found = told.metrics()
    outcomes = {point.attributes["clew.outcome"] for point in found["clew.run.duration"]}
    assert outcomes == {"waiting", "done"}
    assert {point.attributes["clew.node"] for point in found["clew.node.duration"]} == {"plan", "book", "inner", "deep"}
    assert sum(point.count for point in found["clew.commit.duration"]) == len(db.thread("t").history()) + 3


def test_an_attempt_of_a_graphs_node_is_a_span(db: clew.Database, told: Told) -> None:
    tries = iter([ValueError("first"), None])

    def shaky(state: Any) -> Any:
        if (error := next(tries)) is not None:
            raise error
        return {"log": ["fine"]}

    builder = StateGraph(Log)
    builder.add_node("shaky", shaky, retry_policy=RetryPolicy(initial_interval=0.01, retry_on=ValueError))
    builder.add_edge(START, "shaky")
    assert LangGraphAgent(builder.compile(), name="graph").run(db.thread("t"), {"log": []}).status == "done"
    nodes = [dict(span.attributes or {}) for span in told.spans if span.name == "node shaky"]
    assert [(at["clew.attempt"], at["clew.outcome"]) for at in nodes] == [(1, "failed"), (2, "done")]


def test_an_agent_under_a_worker_is_one_trace(db: clew.Database, told: Told) -> None:
    trip = make_trip()
    with told.tracers.get_tracer("web").start_as_current_span("POST") as post:
        run = db.submit(trip, "t", {"city": "nara"})
    clew.Worker(db, trip).run(until_idle=True)
    run.requests[0].answer(True, by="alice")
    clew.Worker(db, trip).run(until_idle=True)
    start = told.named("start trip")
    assert start.parent is not None
    assert start.parent.span_id == post.get_span_context().span_id
    assert [span.name for span in told.spans if span.name == "run trip"] == ["run trip", "run trip"]
    assert {span.context.trace_id for span in told.spans if span.context} == {post.get_span_context().trace_id}


class Telling(SpanExporter):
    """Exports to the process that waits for this one."""

    def __init__(self, tell: Any) -> None:
        self._tell = tell

    def export(self, spans: Any) -> SpanExportResult:
        for span in spans:
            self._tell((span.name, span.context.trace_id, span.context.span_id))
        return SpanExportResult.SUCCESS


@pytest.fixture(params=["file", "postgres"])
def lasting(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    from places import make

    return make(request.param, tmp_path, request.getfixturevalue("postgres") if request.param == "postgres" else None)


@pytest.mark.parametrize("traced", [True, False])
def test_a_killed_run_goes_on_in_its_trace(lasting: Place, told: Told, traced: bool) -> None:
    kill = make_trip(lambda: os.kill(os.getpid(), signal.SIGKILL))

    def child(tell: Any) -> None:
        observing.observers = ()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(Telling(tell)))
        if traced:
            instrument(tracer_provider=tracers, meter_provider=MeterProvider())
        kill.run(lasting.open().thread("t"), {"city": "nara"})

    outcome = in_child(child)
    assert outcome.raised is None, outcome.raised
    assert outcome.killed_by == signal.SIGKILL
    assert [name for name, _, _ in outcome.told] == (["start trip", "call model", "node plan"] if traced else [])

    live = make_trip()
    with lasting.open() as db:
        run = live.resume(db.thread("t"))
        assert run.status == "waiting"
        run.requests[0].answer(True, by="alice")
        assert live.resume(db.thread("t")).status == "done"
    stretches = [span for span in told.spans if span.name == "run trip"]
    assert len(stretches) == 2
    if traced:
        _, trace_id, span_id = outcome.told[0]
        for span in stretches:
            assert span.context is not None
            assert span.parent is not None
            assert (span.context.trace_id, span.parent.span_id) == (trace_id, span_id)
    else:  # nothing was kept: each stretch is a trace of its own
        assert len({span.context.trace_id for span in stretches if span.context}) == 2


def test_a_fork_goes_on_in_the_trace_of_its_origin(db: clew.Database, told: Told) -> None:
    agent = clew.Agent("two")

    @agent.node(start=True, then="second")
    def first(state: Any) -> Any:
        return {"n": 1}

    @agent.node
    def second(state: Any) -> Any:
        return {"n": 2}

    agent.run(db.thread("t"))
    fork = db.thread("t").fork("~1", branch="again")
    agent.resume(fork)
    starts = [span for span in told.spans if span.name == "start two"]
    assert len(starts) == 2
    assert starts[1].parent is not None
    assert starts[0].context is not None
    assert starts[1].parent.span_id == starts[0].context.span_id
    assert len({span.context.trace_id for span in told.spans if span.context}) == 1


@pytest.mark.parametrize("kept", ["", "nonsense", "[1]", '{"traceparent": 7}', '{"traceparent": "00-zz"}', "\ud800"])
def test_a_trace_that_cannot_be_read_is_ignored(told: Told, kept: str) -> None:
    with observing.span("run", "trip", trace=kept):
        pass
    assert told.named("run trip").parent is None


def test_an_observer_that_fails_harms_nobody(db: clew.Database, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def span(self, *args: Any) -> Any:
            raise RuntimeError("broken")

        committed = span

    stop = observing.observe(Broken())
    try:
        assert make_trip().run(db.thread("t"), {"city": "nara"}).status == "waiting"
    finally:
        stop()
    assert {record.exc_info[1].args for record in caplog.records if record.exc_info} == {("broken",)}  # type: ignore[union-attr]
    assert all(record.levelno == logging.ERROR for record in caplog.records)


def test_nothing_is_imported_or_made_when_nobody_looks() -> None:
    script = (
        "import sys, clew\n"
        "def node(state): return {'n': 1}\n"
        "clew.agent(node).run(clew.open('memory:').thread('t'))\n"
        "from clew import observing\n"
        "assert observing.span('run', 'a', n=1) is observing.UNOBSERVED and observing.began() == 0.0\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
