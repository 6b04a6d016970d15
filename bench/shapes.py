"""States that hold the same conversation in different places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

import clew
from bench.content import message

State = dict[str, Any]


@clew.register("bench.Agent")
@dataclass
class Agent:
    name: str = "planner"
    history: list[Any] = field(default_factory=list)


@clew.register("bench.Model")
class Model(BaseModel):
    name: str = "planner"
    history: list[dict[str, str]] = Field(default_factory=list)


def langchain_message(content: str, step: int) -> Any:
    """As a chat model and a user make them: with an id."""
    kind = AIMessage if step % 2 else HumanMessage
    return kind(content=content, id=f"msg-{step:08d}")


class Shape(NamedTuple):
    """How a state begins, where its list of messages is, and what a message is made of."""

    name: str
    begin: Callable[[], State]
    messages: Callable[[State], list[Any]]
    make: Callable[[str, int], Any] = message


LIST = Shape("list", lambda: {"messages": []}, lambda state: state["messages"])
DEEP = Shape(
    "in a dict, three levels down",
    lambda: {"agent": {"name": "planner", "memory": {"conversation": {"messages": []}}}},
    lambda state: state["agent"]["memory"]["conversation"]["messages"],
)
DATACLASS = Shape("in a dataclass", lambda: {"agent": Agent()}, lambda state: state["agent"].history)
PYDANTIC = Shape("in a pydantic model", lambda: {"agent": Model()}, lambda state: state["agent"].history)
LANGCHAIN = Shape("LangChain messages", lambda: {"messages": []}, lambda state: state["messages"], langchain_message)
NESTED = (DEEP, DATACLASS, PYDANTIC, LANGCHAIN)
