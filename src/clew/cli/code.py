"""MODULE:AGENT: from what people type to an agent in their own code."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import clew
from clew.cli.settings import settings
from clew.errors import BadInput, ClewError

_HINT = "write MODULE:AGENT, for example app:trip for `trip = clew.Agent(…)` in app.py"


def find_agent(text: str) -> Any:
    """The agent that MODULE:AGENT names, of Clew or of an adapter; AGENT may be left out where there is but one.

    Modules are looked for in the current directory first. `app.py` is read as `app`.
    """
    name, colon, attribute = text.partition(":")
    module = _module(name)
    agents = {key: value for key, value in vars(module).items() if _is_agent(value)}
    if not colon and len(set(map(id, agents.values()))) == 1:
        return _plain(next(iter(agents.values())))
    there = f"it has {', '.join(agents)}" if agents else "it has no agent"
    if not attribute:
        raise BadInput(f"{text!r} does not say which agent of {name} is meant; {there}", hint=_HINT)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not _is_agent(found):
        what = "has no" if found is None else f"has a {type(found).__name__}, not an agent,"
        raise BadInput(f"module {name!r} {what} {attribute!r}; {there}", hint=_HINT)
    return _plain(found)


def _module(name: str) -> ModuleType:
    dotted = name.removesuffix(".py").strip("/").replace("/", ".")
    if not dotted or not all(part.isidentifier() for part in dotted.split(".")):
        raise BadInput(f"{name!r} is no module's name", hint=_HINT)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name is None or not (dotted == error.name or dotted.startswith(f"{error.name}.")):
            raise  # the module is there, and misses another one
        raise BadInput(
            f"there is no module {error.name!r}, neither in {Path.cwd()} nor installed", hint=_HINT
        ) from error


def _is_agent(value: object) -> bool:
    return isinstance(value, clew.Agent) or (not isinstance(value, type) and hasattr(value, "take_up"))


def _plain(agent: Any) -> Any:
    """The agent as one that is not awaited: `clew.aio` makes those."""
    if type(agent) is clew.Agent or not isinstance(agent, clew.Agent):
        return agent
    made = clew.Agent.__new__(clew.Agent)
    made.__dict__ = agent.__dict__
    return made


@contextmanager
def own_code(ctx: click.Context) -> Iterator[None]:
    """Around the person's own code: what it prints stays out of JSON, and its errors are shown as its own."""
    with redirect_stdout(sys.stderr) if settings().json else nullcontext():
        try:
            yield
        except (ClewError, click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises
            click.echo(_told(error), nl=False, err=True)
            ctx.exit(1)


def _told(error: Exception) -> str:
    """A traceback of the person's own code: what we did around it is of no interest to them."""
    ours = [Path(module.__file__ or "").parent for module in (clew, click, importlib)]
    told = traceback.TracebackException.from_exception(error)
    work = [told]
    while work:
        part = work.pop()
        own = [
            frame
            for frame in part.stack
            if not frame.filename.startswith("<frozen") and not {*ours} & {*Path(frame.filename).parents}
        ]
        part.stack = traceback.StackSummary.from_list(own)
        work += [other for other in (part.__cause__, part.__context__) if other is not None]
    return "".join(told.format())
