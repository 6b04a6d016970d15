"""Effects: calls that change the outside world. At most once by their key, whatever becomes of the process.

A claim of the key is durable before the call, the result is recorded by the claim's token after it. What lies between
is `unknown`, and is never called again but by the word of a person, or of a function that has looked (`on_unknown`).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, overload

from clew import observing
from clew.errors import BadInput, CodecError, Unserialisable
from clew.runtime.activation import Activation, here, inside
from clew.runtime.calls import called_with, key_text, name_of
from clew.runtime.effect_questions import ask_repeat, ask_unknown
from clew.runtime.steps import Outside, Rest, Steps, Store, take, take_async
from clew.state.codec import decode, encode
from clew.state.values import summary_of
from clew.storage.ledger import Claimed, Complete, EffectRow, EffectState, NewEffect

P = ParamSpec("P")
R = TypeVar("R")
Unknown = Literal["ask", "retry"] | Callable[..., Any]
Types = type[Exception] | tuple[type[Exception], ...]
"""One type, or several, as `except` takes them."""

_LOOK = 0.25
"""Seconds between two looks at a call that is under way."""

_under_way: dict[str, Future[None]] = {}
"""Claims that this process is calling for, by their tokens; each future ends with its call."""
os.register_at_fork(after_in_child=_under_way.clear)


class Done(NamedTuple):
    """What a function given as `on_unknown` returns when the effect was done: its result. None: it was not done."""

    result: Any = None


class Transaction(NamedTuple):
    """The function of an effect on the user's own tables, given a connection first; and how long it may take."""

    fn: Callable[..., Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Declared:
    """An effect as it was declared."""

    fn: Callable[..., Any]
    name: str
    key: Any
    on_unknown: Unknown = "ask"
    not_done: tuple[type[Exception], ...] = ()
    compensate: Callable[..., Any] | None = None
    transaction: Transaction | None = None

    def text_of_key(self, args: Any, kwargs: Any) -> str:
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        if key is None:
            raise BadInput(f"the key of {self.name!r} is None", hint="the key is what two calls of one deed share")
        return key_text(key, self.name)


declared: dict[str, Declared] = {}
"""The effects that this process knows, by their names: what undoes one of them is found here."""


@overload
def effect(
    fn: Callable[P, R],
    /,
    *,
    key: Any,
    on_unknown: Unknown = "ask",
    not_done: Types = (),
    compensate: Callable[..., Any] | None = None,
) -> Callable[P, R]: ...
@overload
def effect(
    fn: None = None,
    /,
    *,
    key: Any,
    on_unknown: Unknown = "ask",
    not_done: Types = (),
    compensate: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def effect(
    fn: Any = None,
    /,
    *,
    key: Any,
    on_unknown: Unknown = "ask",
    not_done: Types = (),
    compensate: Callable[..., Any] | None = None,
) -> Any:
    """Make a function that changes the outside world an effect: on one thread, it is done at most once for each key.

    `key` is a function of the arguments, or a value. Called again with the same key and arguments, the effect gives the
    recorded result; with other arguments it raises `EffectConflict`. `clew.call_key()` within it is a key to hand on.

    The intent is durable before the call. If it is not known afterwards what happened (a crash, a timeout, an exception
    of a type that is not in `not_done`), `on_unknown` decides: "ask" asks a person, and the run waits; "retry" calls
    again under the same `call_key`, for a callee that knows it; a function of the same arguments looks for itself, and
    returns `clew.Done(result)`, or None if it was not done.

    `compensate(result, *arguments)` undoes it, when a run is cancelled with `compensate=True` or rolled back. This is
    an effect as well: at most once, and asked about if nobody knows. What was undone is called when it comes again.

    >>> import clew
    >>> @clew.effect(key=lambda amount, trip: ("charge", trip))
    ... def charge(amount, trip): return f"receipt for {amount}"
    >>> @clew.agent
    ... def pay(state): return {"log": [charge(420, "trip-7"), charge(420, "trip-7")]}
    >>> pay.run(clew.open("memory:").thread("trip-7")).state
    {'log': ['receipt for 420', 'receipt for 420']}
    """
    types: Any = not_done if isinstance(not_done, tuple) else (not_done,)
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in types):
        raise BadInput(f"not_done takes types of exceptions, not {not_done!r:.60}")
    if on_unknown not in ("ask", "retry") and not callable(on_unknown):
        raise BadInput(f'on_unknown is "ask", "retry" or a function, not {on_unknown!r:.60}')
    if compensate is not None and not callable(compensate):
        raise BadInput(f"compensate is a function, not {compensate!r:.60}")

    def declare(fn: Any) -> Any:
        if not callable(fn):
            raise BadInput(f"clew.effect takes a function, not {fn!r:.60}")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise BadInput(f"{name_of(fn)} is a generator", hint="an effect is one call with one result")
        made = declared[name_of(fn)] = Declared(fn, name_of(fn), key, on_unknown, types, compensate)
        return called(made)

    return declare if fn is None else declare(fn)


def called(of: Declared) -> Any:
    """The function that stands for an effect: it claims, calls and records."""
    if inspect.iscoroutinefunction(of.fn):

        @functools.wraps(of.fn)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with observing.span("effect", of.name) as span:
                return await take_async(_steps(_call(of, args, kwargs), span))

        return awaited

    @functools.wraps(of.fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with observing.span("effect", of.name) as span:
            return take(_steps(_call(of, args, kwargs), span))

    return plain


def _call(of: Declared, args: Any, kwargs: Any) -> Call:
    return Call(of, here(f"the effect {of.name!r}"), args, kwargs)


class Call:
    """One call of an effect."""

    def __init__(self, of: Declared, activation: Activation, args: Any, kwargs: Any) -> None:
        self.declared = of
        self.activation = activation
        try:
            self.shown = called_with(of.fn, of.name, args, kwargs)
        except Unserialisable as error:
            error.hint = "an effect's arguments are kept, for people and to undo it: have the function find this itself"
            raise
        self.key = of.text_of_key(args, kwargs)
        self.digest = hashlib.sha256(self.shown).digest()[:16]
        self.body = functools.partial(of.fn, *args, **kwargs)
        self.args = args
        self.kwargs = kwargs
        self.claimed: EffectRow | None = None
        """A claim of ours that the function has not been called for yet."""

    def claim(self, again: EffectRow | None = None) -> Claimed:
        """Claim the key, or see what there is. `again`: a claim that is to be made once more."""
        self.activation.check()
        token = os.urandom(8).hex()
        if self.declared.transaction is not None:
            return self._transacted(self.declared.transaction, token, again)
        _under_way[token] = Future()  # before anybody can see the claim
        claimed: Claimed | None = None
        try:
            activation = self.activation
            claimed = activation.ledger.claim(
                activation.thread_id, activation.branch, self._new(token, again), lease=activation.lease
            )
        finally:
            if claimed is None or not claimed.mine:
                ended(token)
        if claimed.mine:
            self.claimed = claimed.row
        return claimed

    def _new(self, token: str, again: EffectRow | None) -> NewEffect:
        activation = self.activation
        return NewEffect(
            self.key,
            self.declared.name,
            self.digest,
            token,
            run=activation.run,
            activation=activation.id,
            step=activation.step,
            shown=self.shown,
            again=None if again is None else again.token,
        )

    def _transacted(self, transaction: Transaction, token: str, again: EffectRow | None) -> Claimed:
        """Claim the key, do it, and record it: one commit."""
        activation, new = self.activation, self._new(token, again)
        place = inside.set(f"the transaction {self.declared.name!r}")
        try:
            return activation.ledger.transact(
                activation.thread_id,
                activation.branch,
                new,
                lambda connection: encode(
                    transaction.fn(connection, *self.args, **self.kwargs), path=f"{self.declared.name} returned"
                ),
                seconds=transaction.seconds,
                lease=activation.lease,
            )
        finally:
            inside.reset(place)

    def earlier(self) -> list[EffectRow]:
        """What other paths have done, if this is a fork."""
        self.activation.passes(f"effect {self.key} #")
        origin, at = self.activation.origin, self.activation.step
        if origin is None or at is None:
            return []
        return origin.earlier(self.activation.id, at, self.key, self.declared.name, self.digest)

    def reused(self) -> None:
        """The recorded result is taken."""
        if self.activation.origin is not None:
            self.activation.origin.reused(self.key)

    def complete(self, row: EffectRow, state: EffectState, value: bytes | None) -> bool:
        """Record what became of a claim: a fact, whoever holds the lease by now."""
        return self.activation.ledger.complete(self.activation.thread_id, Complete(row.key, row.token, state, value))

    def nobody(self, row: EffectRow) -> bool:
        """Whether a claim is of our own lease, but nothing in this process is calling for it any more."""
        lease = self.activation.lease
        mine = lease is not None and (row.branch, row.epoch) == (lease.branch, lease.epoch)
        return mine and row.token not in _under_way

    def call_key(self, row: EffectRow) -> str:
        """The same for each attempt, until one is known to have been done: what follows that is another deed."""
        earlier = 0
        if row.attempt > 1:
            rows = self.activation.ledger.effects(self.activation.thread_id, key=self.key)
            earlier = sum(one.state in ("done", "compensated") for one in rows if one.attempt < row.attempt)
        activation, name = self.activation, self.declared.name
        place = f"{activation.tenant}\0{activation.thread_id}\0{name}\0{self.key}\0{earlier}\0".encode()
        return hashlib.blake2b(place + self.digest, digest_size=16).hexdigest()

    @contextmanager
    def within(self, key: str) -> Iterator[None]:
        """What the function runs in."""
        from clew.runtime.calls import _key

        of_key, of_inside = _key.set(key), inside.set(f"the effect {self.declared.name!r}")
        try:
            yield
        finally:
            _key.reset(of_key)
            inside.reset(of_inside)


def ended(token: str) -> None:
    """The call of a claim is over, and what became of it was recorded, or could not be."""
    future = _under_way.pop(token, None)
    if future is not None:
        future.set_result(None)


def _steps(call: Call, span: observing.Span) -> Steps:
    """From the claim to the result."""
    try:
        return (yield from _to_result(call, span))
    except BaseException as error:
        row, call.claimed = call.claimed, None
        if row is not None:  # cancelled between the claim and the call, which will not be made
            try:
                yield Store(functools.partial(call.complete, row, "failed", encode(summary_of(error))))
            finally:
                ended(row.token)
        raise


def _to_result(call: Call, span: observing.Span) -> Steps:
    seen = yield from _first(call)
    looked = ""
    while True:
        if isinstance(seen, Done):
            return seen.result
        row, error = seen.row, None
        if seen.mine and row.state == "done":
            span.ends("done")
            return _result(row)
        if seen.mine:
            result, error = yield from _made(call, row)
            if error is None:
                span.ends("done")
                return result
            span.ends("unknown", error)
            row = row._replace(state="unknown", value=encode(summary_of(error)))
        elif row.state == "done":
            span.ends("recorded")
            call.reused()
            return _result(row)
        elif row.token in _under_way or row.state == "claimed":
            seen = yield from _waited(call, row)
            continue
        elif row.state == "unknown" and looked != row.token:
            looked = row.token  # without a lease, also a call under way here is; it may have ended since that was read
            seen = yield Store(call.claim)
            continue
        call.activation.check()
        seen = yield from _settled(call, row, error)


def _result(row: EffectRow) -> Any:
    return None if row.value is None else decode(row.value)


def _first(call: Call) -> Steps:
    """The claim; on a fork, after a person has compared it with what other paths have done."""
    earlier = yield Store(call.earlier)
    if not earlier:
        return (yield Store(call.claim))
    call_now = call.declared.name, call.key, call.shown
    answer = yield Store(functools.partial(ask_repeat, call.activation, *call_now, earlier))
    if isinstance(answer, EffectRow):
        return Done(_result(answer))
    if answer == "skip":
        return Done(None)
    same = next((row for row in earlier if row.key == call.key), None)
    return (yield Store(functools.partial(call.claim, same)))


def _made(call: Call, row: EffectRow) -> Steps:
    """Call the function. Its result, or the error that leaves it unknown."""
    call.claimed = None
    try:
        try:
            key = yield Store(functools.partial(call.call_key, row))
            result = yield Outside(call.body, call.within(key))
            stored = encode(result, path=f"{call.declared.name} returned")
        except call.declared.not_done as error:
            yield Store(functools.partial(call.complete, row, "failed", encode(summary_of(error))))
            raise
        except BaseException as error:
            yield Store(functools.partial(call.complete, row, "unknown", encode(summary_of(error))))
            if isinstance(error, Exception) and not isinstance(error, CodecError):
                return None, error
            raise
        yield Store(functools.partial(call.complete, row, "done", stored))
        return result, None
    finally:
        ended(row.token)


def _waited(call: Call, row: EffectRow) -> Steps:
    """Wait for a call that is under way: in this process, or wherever the branch of its claim is held."""
    future = _under_way.get(row.token)
    if future is not None:
        while not future.done():
            call.activation.check()
            yield Rest(_LOOK, future)
    elif call.nobody(row):
        yield Store(functools.partial(call.complete, row, "unknown", None))
    else:
        yield Rest(_LOOK)
    return (yield Store(call.claim))


def _settled(call: Call, row: EffectRow, error: Exception | None) -> Steps:
    """Nobody knows whether it was done: what is known then. A claim made anew, or that it is `Done`."""
    again = Store(functools.partial(call.claim, row))
    how = call.declared.on_unknown
    if row.state == "compensated":
        return (yield again)  # it was done, and undone
    if how == "retry":
        if error is not None:
            raise error
        return (yield again)
    if callable(how):
        return (yield from _reconciled(call, row, how, error))
    answer = yield Store(functools.partial(ask_unknown, call.activation, call.declared.fn, row))
    if answer == "again":
        return (yield again)
    if answer == "skip":
        return Done(None)
    yield Store(functools.partial(call.complete, row, "done", encode(answer["done"])))
    return Done(answer["done"])


def _reconciled(call: Call, row: EffectRow, look: Callable[..., Any], error: Exception | None) -> Steps:
    """The user's function looks whether it was done."""
    key = yield Store(functools.partial(call.call_key, row))
    found = yield Outside(functools.partial(look, *call.args, **call.kwargs), call.within(key))
    if isinstance(found, Done):
        yield Store(functools.partial(call.complete, row, "done", encode(found.result, path="clew.Done")))
        return found
    if found is not None:
        raise BadInput(
            f"{name_of(look)} returned {type(found).__name__} for the effect {call.declared.name!r}",
            hint="return clew.Done(result) if it was done, None if it was not",
        )
    yield Store(functools.partial(call.complete, row, "failed", row.value))
    if error is not None:
        raise error
    return (yield Store(call.claim))
