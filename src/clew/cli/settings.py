"""The options that every command shares, and the database that they lead to."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

import clew
from clew.errors import BadInput, NotADatabase, NotFound

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT_DB = "agent.db"


@dataclass
class Settings:
    """What the shared options say; an option behind the command's name overrides the same one before it."""

    db: str | None = None
    tenant: str = "default"
    blobs: str | None = None
    json: bool = False
    no_color: bool = False

    @property
    def url(self) -> str:
        return self.db or _DEFAULT_DB


def settings() -> Settings:
    """Those of the command that runs."""
    return click.get_current_context().ensure_object(Settings)


def database_options(*, outer: bool = False, short_db: bool = True) -> Callable[[Command], Command]:
    """Add the shared options. `outer`: to the group, where CLEW_DB and CLEW_BLOBS count as well."""
    names = ["-d", "--db"] if short_db else ["--db"]
    from_environment: dict[str, Any] = {"envvar": "CLEW_DB"} if outer else {}
    blobs_too: dict[str, Any] = {"envvar": "CLEW_BLOBS"} if outer else {}
    options = [
        click.option(
            *names,
            "db",
            metavar="URL",
            help=f"The database: a file or postgresql://… Default: CLEW_DB, else {_DEFAULT_DB}.",
            callback=_remember,
            expose_value=False,
            **from_environment,
        ),
        click.option(
            "--tenant", metavar="NAME", help="Whose threads. Default: default.", callback=_remember, expose_value=False
        ),
        click.option(
            "--blobs",
            metavar="FOLDER",
            help="Where large values are files, if clew.open(…, blobs=…) says so. Default: CLEW_BLOBS.",
            callback=_remember,
            expose_value=False,
            **blobs_too,
        ),
        click.option(
            "--json",
            is_flag=True,
            default=None,
            help="Print JSON; its keys are a stable contract.",
            callback=_remember,
            expose_value=False,
        ),
        click.option(
            "--no-color",
            is_flag=True,
            default=None,
            help="No colours. So does NO_COLOR.",
            callback=_remember,
            expose_value=False,
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    shared = ctx.ensure_object(Settings)
    if value is not None and param.name is not None:
        setattr(shared, param.name, value)


@contextmanager
def open_database(*, make: bool = False) -> Iterator[clew.Database]:
    """The database that the options name. Only with `make` one that is missing is made."""
    shared = settings()
    _check_exists(shared.url, make=make)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", clew.UnknownType)  # said once, at the end, by the command that shows values
        with clew.open(shared.url, tenant=shared.tenant, blobs=shared.blobs) as db:
            yield db


def _check_exists(url: str, *, make: bool) -> None:
    if url in ("memory:", ":memory:", "memory://"):
        raise BadInput("a database in memory holds nothing that another process could show")
    if make or ("://" in url and not url.startswith("sqlite:")):
        return
    path = Path(unquote(urlsplit(url).path)[1:] if url.startswith("sqlite:") else url)
    if not path.exists():
        near = sorted(found.name for found in Path().glob("*.db"))[:3] if path.parent == Path() else []
        name = "name it with -d/--db or in CLEW_DB"
        raise NotFound(
            f"there is no database {str(path)!r} in {Path.cwd()}" if not path.is_absolute() else f"there is no {path}",
            hint=f"{name}; here is {', '.join(near)}" if near else f"{name}; clew.open({url!r}) in Python makes one",
        )
    if path.is_file() and path.stat().st_size == 0 and not Path(f"{path}-wal").exists():
        raise NotADatabase(f"{path} is empty", hint="nothing has been saved there yet")


def note(message: str) -> None:
    """Tell the person something that is not data."""
    click.echo(message, err=True)


def is_utf8() -> bool:
    """Whether stdout takes more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
