"""A graph to be killed: nodes one after the other, side by side, sent, within a subgraph, and a cycle."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

Tell = Callable[[str, str], None]
"""Is told "begin" or "end", and the word that names a task and what it adds to the log."""


class Bag(TypedDict, total=False):
    bag: Annotated[list[str], operator.add]


class Trip(Bag, total=False):
    log: Annotated[list[str], operator.add]
    turns: int
    said: str


def trip_graph(tell: Tell, *, awaited: bool = False) -> Any:
    """Every task adds one word to the log, or to the bag. The words of a trip are all different."""

    def node(name: str, to: str = "log", **more: Callable[[Any], Any]) -> Any:
        def plain(state: Any) -> dict[str, Any]:
            word = f"{name} {state['at']}" if "at" in state else f"{name} {len(state[to])}"
            tell("begin", word)
            update = {to: [word], **{key: value(state) for key, value in more.items()}}
            tell("end", word)
            return update

        async def waits(state: Any) -> dict[str, Any]:
            await asyncio.sleep(0)
            return plain(state)

        return waits if awaited else plain

    bag = StateGraph(Bag)
    bag.add_node("pack", node("pack", "bag"))
    bag.add_node("close", node("close", "bag"))
    bag.add_edge(START, "pack")
    bag.add_edge("pack", "close")

    builder = StateGraph(Trip)
    for name in ("plan", "flight", "hotel", "look"):
        builder.add_node(name, node(name))
    builder.add_node("join", node("join", turns=lambda state: state.get("turns", 0) + 1))
    builder.add_node("bag", bag.compile())
    builder.add_node("pay", node("pay", said=lambda state: interrupt("pay?")))
    builder.add_edge(START, "plan")

    def after(state: Any) -> list[Any]:
        return ["flight", "hotel", *(Send("look", {"at": f"{at}{len(state['log'])}"}) for at in "ab")]

    builder.add_conditional_edges("plan", after, ["flight", "hotel", "look"])
    builder.add_edge(["flight", "hotel"], "join")
    builder.add_conditional_edges("join", lambda state: "plan" if state["turns"] < 2 else "bag")
    builder.add_edge("bag", "pay")
    builder.add_edge("pay", END)
    return builder.compile()
