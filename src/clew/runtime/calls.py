"""Calls that are journaled: what a node has got from outside is not asked for again after a crash."""

from __future__ import annotations

import functools
import hashlib
import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, overload

from clew import observing
from clew.errors import BadInput, NoRun, Unserialisable
from clew.runtime.activation import Activation, Slot, here_or_none
from clew.runtime.hops import hop
from clew.runtime.retry import Retry
from clew.state.codec import decode, encode
from clew.state.digest import digest

P = ParamSpec("P")
R = TypeVar("R")
Key = Callable[..., Any]

_key: ContextVar[str | None] = ContextVar("clew_call_key", default=None)


def call_key() -> str:
    """The key of the recorded call or effect that this code runs in: the same whenever that is tried again.

    Hand it to whom you call: `headers={"Idempotency-Key": clew.call_key()}`.
    """
    found = _key.get()
    if found is None:
        raise NoRun("clew.call_key was called outside of a recorded call or an effect")
    return found


def name_of(fn: Callable[..., Any]) -> str:
    """What a function is known by: its own name, not where it stands, so that it may move."""
    return getattr(fn, "__qualname__", type(fn).__qualname__).rsplit("<locals>.", 1)[-1]


def digest_of(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], of_list: Callable[[list[Any]], bytes | None] | None = None
) -> bytes:
    """A digest of a call's arguments. They must be what Clew can store; `of_list` may know that of a long list."""
    given = [*args, *(kwargs[key] for key in sorted(kwargs))]
    lists = []
    for at, value in enumerate(given):
        if type(value) is list:
            lists.append(at)
            given[at] = (of_list(value) if of_list is not None else None) or digest(value, f"{name}[{at}]")
    return digest((*given, lists, sorted(kwargs)), name)


def called_with(fn: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments of a call by their names, stored: however it was spelled."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # not written in Python
        return encode({"args": args, "kwargs": dict(sorted(kwargs.items()))}, path=name)
    return encode(signature.bind(*args, **kwargs).arguments, path=name)


def key_text(key: Any, name: str) -> str:
    """A key that somebody gave, as text: what differs in it differs in the text."""
    if type(key) is tuple and all(type(part) in (str, int) for part in key) and len(repr(key)) <= _LONGEST:
        return repr(key)
    if isinstance(key, str) and key.isprintable() and len(key) <= _LONGEST:
        return key
    return f"{name}:{hashlib.blake2b(encode(key, path='key'), digest_size=16).hexdigest()}"


_LONGEST = 200


@overload
def recorded(fn: Callable[P, R], /, *, key: Key | None = None, retry: Retry | int | None = None) -> Callable[P, R]: ...
@overload
def recorded(
    fn: None = None, /, *, key: Key | None = None, retry: Retry | int | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def recorded(fn: Any = None, /, *, key: Key | None = None, retry: Retry | int | None = None) -> Any:
    """Journal the results of a function: after a crash, the node gets the recorded result instead of a second call.

    For model calls and reads. A call is known by the function's name and its arguments, and by how many like it came
    before it in the node; `key=` (a function of the arguments) takes the arguments' place. Exceptions are not recorded;
    `retry=` tries again. Outside of a run, the function is simply called.

    >>> @recorded
    ... def model(messages): return f"{len(messages)} messages"
    >>> model(["hello"])
    '1 messages'
    """
    if fn is None:
        return functools.partial(recorded, key=key, retry=retry)
    if not callable(fn):
        raise BadInput(f"clew.recorded takes a function, not {fn!r:.60}")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise BadInput(f"{name_of(fn)} is a generator", hint="record a function that returns the whole result")
    policy = Retry.of(retry)
    if inspect.iscoroutinefunction(fn):
        return _recorded_async(fn, key, policy)
    name = name_of(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        activation = here_or_none()
        if activation is None:
            return _retried(fn, policy, args, kwargs)
        slot = _slot(activation, fn, key, args, kwargs)
        found = activation.find(slot)
        with observing.span("call", name, recorded=found is not None):
            if found is not None:
                return decode(found)
            token = _key.set(_stable(activation, slot))
            try:
                result = _retried(fn, policy, args, kwargs)
            finally:
                _key.reset(token)
            activation.keep(slot, encode(result, path=f"{slot.call} returned"))
            return result

    return call


def _recorded_async(fn: Any, key: Key | None, policy: Retry) -> Any:
    name = name_of(fn)

    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        activation = here_or_none()
        if activation is None:
            return await _retried_async(fn, policy, args, kwargs)
        slot = _slot(activation, fn, key, args, kwargs)
        found = activation.find(slot)
        with observing.span("call", name, recorded=found is not None):
            if found is not None:
                return decode(found)
            token = _key.set(_stable(activation, slot))
            try:
                result = await _retried_async(fn, policy, args, kwargs)
            finally:
                _key.reset(token)
            await hop(activation.keep, slot, encode(result, path=f"{slot.call} returned"))
            return result

    return call


def _slot(activation: Activation, fn: Any, key: Key | None, args: Any, kwargs: Any) -> Slot:
    name = name_of(fn)
    trusted = []

    def of_list(value: list[Any]) -> bytes | None:
        found = activation.digest_of(value)
        trusted.append(found)
        return found

    try:
        told = digest_of(name, args, kwargs, of_list).hex() if key is None else key_text(key(*args, **kwargs), name)
    except Unserialisable as error:
        error.hint = "a call is known by its arguments; clew.recorded(key=…), a function of them, says which count"
        raise
    # What another one calls is counted apart: when that is not called again, nor is this.
    slot = activation.slot(f"{name}({told})" if (outer := _key.get()) is None else f"{outer}/{name}({told})")
    if any(trusted):
        activation.trusting.append(slot)
    return slot


def _stable(activation: Activation, slot: Slot) -> str:
    place = f"{activation.thread_id}\0{activation.id}\0{slot.call}\0{slot.idx}"
    return hashlib.blake2b(place.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _retried(fn: Any, policy: Retry, args: Any, kwargs: Any) -> Any:
    attempt = 1
    while True:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            pause = policy.pause(attempt, error)
            if pause is None:
                raise
            time.sleep(pause)
            attempt += 1


async def _retried_async(fn: Any, policy: Retry, args: Any, kwargs: Any) -> Any:
    import asyncio

    attempt = 1
    while True:
        try:
            return await fn(*args, **kwargs)
        except Exception as error:
            pause = policy.pause(attempt, error)
            if pause is None:
                raise
            await asyncio.sleep(pause)
            attempt += 1
