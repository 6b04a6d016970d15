"""A chat model that answers by rule, so that the examples need no key. Put any LangChain chat model in its place."""

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    """The same answer to the same conversation."""

    tools: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return Scripted(tools=tuple(tool.name for tool in tools))

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return AIMessage(f"Done: {last.content}")
        said = [str(message.content) for message in messages if isinstance(message, HumanMessage)]
        city = (re.findall(r"Tokyo|Osaka|Oslo", " ".join(said)) or ["nowhere"])[-1]
        if "weather" in said[-1] and "weather" in self.tools:
            return self._call("weather", {"city": city}, len(messages))
        if "Book" in said[-1] and "book" in self.tools:
            return self._call("book", {"hotel": f"the Grand {city}", "nights": 3}, len(messages))
        if "like" in said[-1] and "remember" in self.tools:
            return self._call("remember", {"fact": said[-1]}, len(messages))
        if "know" in said[-1] and "recall" in self.tools:
            return self._call("recall", {}, len(messages))
        if "Which" in said[-1]:
            return AIMessage(f"You spoke of {city}, in message {1 + said.index(next(s for s in said if city in s))}.")
        return AIMessage(f"{city}: the old town, the market, and a day in the country.")

    def _call(self, name: str, args: dict[str, Any], number: int) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{number}"}])
