"""Graphs whose histories are imported: built with LangGraph's own savers first, then carried on with ours."""

from __future__ import annotations

import datetime as dt
import enum
import operator
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pydantic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Line(pydantic.BaseModel):
    name: str
    count: int = 1


class Order(pydantic.BaseModel):
    lines: list[Line]
    size: Size


@dataclass
class Spot:
    x: int
    label: str | None = None


class Plan(TypedDict, total=False):
    log: Annotated[list, operator.add]
    order: Any
    parts: Annotated[list, operator.add]


class Counted(TypedDict):
    messages: Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


VALUES = {
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    "date": dt.date(2026, 1, 2),
    "time": dt.time(3, 4, 5, tzinfo=dt.UTC),
    "span": dt.timedelta(days=1, seconds=2, microseconds=3),
    "uuid": uuid.UUID(int=7),
    "money": Decimal("1.10"),
    "set": {1, 2},
    "frozen": frozenset({"a"}),
    "queue": deque([1, 2]),
    "path": Path("a/b"),
    "bytes": b"\0\xff",
    "nested": {"deep": [{"er": [1.5, None, True, 2**60]}]},
    7: "a number as key",
}


def _reply(state: Any) -> dict[str, Any]:
    asked = sum(isinstance(message, HumanMessage) for message in state["messages"])
    call = AIMessage(
        "", id=f"call-{asked}", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": f"t{asked}"}]
    )
    answer = ToolMessage("rain", id=f"tool-{asked}", tool_call_id=f"t{asked}", artifact={"mm": 3})
    said = AIMessage(
        f"answer {asked}",
        id=f"ai-{asked}",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "scripted"},
    )
    return {"messages": [call, answer, said]}


def chat(saver: Any, state: Any = MessagesState) -> Any:
    return StateGraph(state).add_node("reply", _reply).add_edge(START, "reply").compile(checkpointer=saver)


def delta_chat(saver: Any) -> Any:
    return chat(saver, Counted)


def shop(saver: Any) -> Any:
    """Parallel branches, a subgraph that asks, Sends, and values of many types."""

    def look(state: Plan) -> dict[str, Any]:
        return {"log": ["look"], "parts": [VALUES]}

    def ask(state: Plan) -> dict[str, Any]:
        size = interrupt({"which": "size", "of": Spot(3, "here")})
        return {"log": [f"size {size}"], "order": Order(lines=[Line(name="tea")], size=Size(size))}

    def pack(state: Any) -> dict[str, Any]:
        if state["item"] == "broken":
            raise ValueError("it is broken")
        return {"parts": [Spot(state["item"]) if isinstance(state["item"], int) else state["item"]]}

    inner = StateGraph(Plan).add_node("ask", ask).add_edge(START, "ask").compile()
    builder = StateGraph(Plan)
    builder.add_node("look", look)
    builder.add_node("desk", inner)
    builder.add_node("pack", pack)
    builder.add_edge(START, "look")
    builder.add_edge("look", "desk")
    builder.add_conditional_edges(
        "desk", lambda state: [Send("pack", {"item": item}) for item in (1, 2, state["log"][0])], ["pack"]
    )
    return builder.compile(checkpointer=saver)


def at(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def play(saver: Any) -> None:
    """Everything up to a point at which much is open: a question, a failure, two branches."""
    for turn in range(3):
        chat(saver).invoke({"messages": [HumanMessage(f"question {turn}", id=f"h{turn}")]}, at("chat"))
    for turn in range(7):
        delta_chat(saver).invoke({"messages": [HumanMessage(f"question {turn}", id=f"h{turn}")]}, at("delta"))
    graph = shop(saver)
    graph.invoke({"log": ["whole"]}, at("whole"))
    graph.invoke(Command(resume="s"), at("whole"))
    graph.invoke({"log": ["asked"]}, at("asked"))
    graph.invoke({"log": ["broken"]}, at("broken"))
    with suppress(ValueError):
        graph.invoke(Command(resume="l"), at("broken"))
    history = list(chat(saver).get_state_history(at("chat")))
    chat(saver).update_state(history[3].config, {"messages": [HumanMessage("another way", id="other")]})


def go_on(saver: Any) -> dict[str, Any]:
    """Carry all of it on; what comes out."""
    chat(saver).invoke({"messages": [HumanMessage("and now?", id="last")]}, at("chat"))
    for turn in range(7, 10):
        delta_chat(saver).invoke({"messages": [HumanMessage(f"question {turn}", id=f"h{turn}")]}, at("delta"))
    shop(saver).invoke(Command(resume="l"), at("asked"))
    states = {
        "chat": chat(saver).get_state(at("chat")),
        "delta": delta_chat(saver).get_state(at("delta")),
        "asked": shop(saver).get_state(at("asked")),
        "broken": shop(saver).get_state(at("broken")),
    }
    return {
        name: (state.values, state.next, [(task.name, task.error) for task in state.tasks])
        for name, state in states.items()
    }


def histories(saver: Any) -> dict[str, Any]:
    """Every snapshot of every thread."""
    graphs = {"chat": chat, "delta": delta_chat, "whole": shop, "asked": shop, "broken": shop}
    return {name: list(made(saver).get_state_history(at(name))) for name, made in graphs.items()}


def tuples(saver: Any) -> list[Any]:
    """Every checkpoint of every namespace, as the saver gives it, with its writes."""
    found = [one._replace(pending_writes=one.pending_writes or []) for one in saver.list(None)]
    return sorted(found, key=lambda one: sorted(one.config["configurable"].items()))
