"""The state of an agent as its author declares it: a TypedDict, a dataclass, a pydantic model, or any dict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, get_args, get_origin, is_typeddict

from clew import references
from clew.errors import BadInput
from clew.state.draft import Extend
from clew.state.shape_types import hints_of

_EMPTY = (list, dict, set, str, int, float, bool, tuple)


class Schema:
    """What keys a state has, how updates of each are reduced, and in what form nodes see it.

    Stored is always a plain dict of the keys, so that the command line and diffs need nothing of the app.
    """

    def __init__(self, declared: Any = None) -> None:
        self._type: Any = None if declared is dict else declared
        self._form = _form_of(self._type)
        hints = {} if self._form == "dict" else hints_of(self._type)
        fields = _model_fields(self._type) if self._form == "model" else None
        if fields is not None:
            hints = {name: hint for name, hint in hints.items() if name in fields}
        self.keys: frozenset[str] | None = None if self._form == "dict" else frozenset(hints)
        self.reducers: dict[str, Any] = {}
        self.empties: dict[str, Callable[[], Any]] = {}
        for name, hint in hints.items():
            self._learn(name, hint, fields[name].metadata if fields is not None else ())
        if self._form == "dataclass":
            self._learn_defaults()

    def _learn(self, name: str, hint: Any, metadata: Any) -> None:
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        notes = [*getattr(hint, "__metadata__", ()), *metadata]
        reducer = next((note for note in notes if note is Extend or _is_reducer(note)), None)
        if reducer is not None:
            self.reducers[name] = reducer
        plain = get_origin(kind) or kind
        if plain in _EMPTY:
            self.empties[name] = plain

    def _learn_defaults(self) -> None:
        for field in dataclasses.fields(self._type):
            if field.default_factory is not dataclasses.MISSING:
                self.empties[field.name] = field.default_factory
            elif field.default is not dataclasses.MISSING:
                self.empties[field.name] = partial(_given, field.default)

    # -- in and out

    def view(self, state: dict[str, Any]) -> Any:
        """The state as a node sees it. `state` becomes the node's own."""
        if self._form in ("dict", "typed"):
            return state
        known = {key: value for key, value in state.items() if self.keys is None or key in self.keys}
        try:
            return self._type.model_validate(known) if self._form == "model" else self._type(**known)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the state does not fit {self._type.__name__}: {error}",
                hint="give the missing keys with the run's input, or defaults in the class",
            ) from error

    def read_back(self, view: Any) -> dict[str, Any]:
        """What a node's view holds now, to be compared with what it was given."""
        if self._form in ("dict", "typed"):
            return view  # type: ignore[no-any-return]
        return {name: getattr(view, name) for name in self.keys or ()}

    def update_of(self, returned: Any, writer: str) -> dict[str, Any]:
        """What a node returned, as keys and values. `writer` is for the error: "node 'plan'", "the input"."""
        if returned is None:
            return {}
        if self._form in ("dataclass", "model") and isinstance(returned, self._type):
            given = getattr(returned, "model_fields_set", None)
            names = self.keys or ()
            return {name: getattr(returned, name) for name in names if given is None or name in given}
        if not isinstance(returned, Mapping):
            raise BadInput(
                f"{writer} gave {type(returned).__name__}, not an update of the state",
                hint='return a dict of what changes, {"paid": True}, or None',
            )
        for key in returned:
            if type(key) is not str:
                raise BadInput(f"{writer} gave an update with the key {key!r}; keys are str")
            if self.keys is not None and key not in self.keys:
                near = references.near(key, sorted(self.keys))
                hint = "did you mean " + " or ".join(map(repr, near)) + "?" if near else ""
                raise BadInput(
                    f"{writer} gave an update of {key!r}, which {self._type.__name__} does not have",
                    hint=hint or f"its keys are {', '.join(sorted(self.keys))}",
                )
        return dict(returned)


def _given(value: Any) -> Any:
    return value


def _form_of(declared: Any) -> str:
    if declared is None:
        return "dict"
    if is_typeddict(declared):
        return "typed"
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        return "dataclass"
    if isinstance(declared, type) and _model_fields(declared) is not None:
        return "model"
    raise BadInput(
        f"state={declared!r} is not a kind of state", hint="a TypedDict, a dataclass, a pydantic model, or leave it out"
    )


def _model_fields(declared: Any) -> Mapping[str, Any] | None:
    fields = getattr(declared, "model_fields", None)
    return fields if isinstance(fields, Mapping) and hasattr(declared, "model_validate") else None


def _is_reducer(note: Any) -> bool:
    return callable(note) and not isinstance(note, type)
