"""One of two processes on one thread of a graph: `racing.py SAVER URL STATE HOW NAME ON_RACE`.

It reads lines, each the number of a trial, and answers each with what its run came to: the ids of the messages that
its graph returned, the races that were reported, or the error.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import warnings
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, interrupt

Kept = Annotated[list, DeltaChannel(_messages_delta_reducer)]
STATES: dict[str, Any] = {"messages": MessagesState, "delta": TypedDict("Growing", {"messages": Kept})}


def saver_on(name: str, url: str, on_race: Any = "report") -> Any:
    if name == "langgraph":
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = SqliteSaver(sqlite3.connect(url, check_same_thread=False, timeout=60))
        saver.setup()
        return saver
    from clew.adapters.langgraph import ClewSaver

    return ClewSaver.open(url, durability="relaxed", on_race=on_race)


def graph_on(saver: Any, state: str, how: str, name: str) -> Any:
    def first(state: Any) -> Any:
        answer = interrupt("go on?") if how == "resume" else name
        return {"messages": [AIMessage(answer, id=f"{answer}-first-{len(state['messages'])}")]}

    def second(state: Any) -> Any:
        return {"messages": [AIMessage(name, id=f"{name}-second-{len(state['messages'])}")]}

    builder = StateGraph(STATES[state])
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def config_of(trial: Any) -> Any:
    return {"configurable": {"thread_id": f"trial {trial}"}}


def asked(name: str, how: str) -> Any:
    return Command(resume=name) if how == "resume" else {"messages": [HumanMessage(name, id=f"{name}-asked")]}


def ids(values: Any) -> list[str]:
    return [str(message.id) for message in values.get("messages", [])]


def main(saver: str, url: str, state: str, how: str, name: str, on_race: str) -> None:
    graph = graph_on(saver_on(saver, url, on_race), state, how, name)
    print("ready", flush=True)
    for line in sys.stdin:
        told: dict[str, Any] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                told["came to"] = ids(graph.invoke(asked(name, how), config_of(line.strip())))
            except Exception as error:
                told["error"] = [type(error).__name__, str(error)]
        told["races"] = [str(one.message) for one in caught if one.category.__name__ == "RaceWarning"]
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
