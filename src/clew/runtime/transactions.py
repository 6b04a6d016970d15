"""Effects on tables of the user's own, in Clew's database: what they change and that they were done is one commit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

from clew.errors import BadInput
from clew.runtime.calls import name_of
from clew.runtime.effects import Declared, Transaction, called, declared

_LONGEST = 60.0


@overload
def transaction(
    fn: Callable[..., Any], /, *, key: Any, compensate: Callable[..., Any] | None = None, timeout: float = 5.0
) -> Callable[..., Any]: ...
@overload
def transaction(
    fn: None = None, /, *, key: Any, compensate: Callable[..., Any] | None = None, timeout: float = 5.0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def transaction(
    fn: Any = None, /, *, key: Any, compensate: Callable[..., Any] | None = None, timeout: float = 5.0
) -> Any:
    """An effect on tables of your own in Clew's database: exactly once.

    The function gets the connection of Clew's own transaction first (apsw's on SQLite, psycopg's on PostgreSQL), then
    its arguments. What it writes there and that it was done is one commit; an exception undoes both. So nothing is ever
    unknown: called again with this key and these arguments, it gives the recorded result.

    Everybody else who writes waits meanwhile: no other function of Clew is called within, and after `timeout` seconds
    it is rolled back. `compensate(connection, result, *arguments)` undoes it, in a transaction as well.

    >>> import clew
    >>> db = clew.open("memory:")
    >>> @clew.transaction(key=lambda seat: ("seat", seat))
    ... def take(connection, seat):
    ...     connection.execute("CREATE TABLE IF NOT EXISTS seats (seat TEXT PRIMARY KEY)")
    ...     connection.execute("INSERT INTO seats VALUES (?)", (seat,))
    ...     return f"{seat} is yours"
    >>> @clew.agent
    ... def book(state): return {"log": [take("12A"), take("12A")]}
    >>> book.run(db.thread("trip-7")).state
    {'log': ['12A is yours', '12A is yours']}
    """
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST:
        raise BadInput(f"timeout is a number of seconds up to {_LONGEST:g}, not {timeout!r:.60}")
    if compensate is not None and not callable(compensate):
        raise BadInput(f"compensate is a function, not {compensate!r:.60}")

    def declare(fn: Any) -> Any:
        plain_function(fn)
        if compensate is not None:
            plain_function(compensate)
        made = declared[name_of(fn)] = within(fn, name_of(fn), key, timeout, compensate)
        return called(made)

    return declare if fn is None else declare(fn)


def plain_function(fn: Any) -> None:
    if not callable(fn):
        raise BadInput(f"clew.transaction takes a function, not {fn!r:.60}")
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise BadInput(
            f"{name_of(fn)} is not a plain function",
            hint="a transaction is held by one thread; from an asynchronous node: await asyncio.to_thread(fn, …)",
        )


def within(fn: Any, name: str, key: Any, seconds: float, compensate: Any = None) -> Declared:
    """An effect of this function, which gets the connection before its arguments."""
    parameters = list(inspect.signature(fn).parameters.values())
    first = parameters[0].kind if parameters else None
    if first not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
        raise BadInput(f"{name} takes no connection", hint="its first parameter is one: def take(connection, seat)")

    @functools.wraps(fn)
    def without(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("a transaction is not called by itself")

    without.__signature__ = inspect.signature(fn).replace(parameters=parameters[1:])  # type: ignore[attr-defined]
    return Declared(without, name, key, compensate=compensate, transaction=Transaction(fn, seconds))
