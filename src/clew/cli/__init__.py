"""The `clew` command: look at threads, and travel in them, without the agent's code.

Data goes to stdout, messages to stderr. What a command ends with tells what happened: see `docs/cli.md`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from clew.cli.answer import answer
from clew.cli.approve import approve
from clew.cli.cancel import cancel
from clew.cli.demo import demo
from clew.cli.diff import diff
from clew.cli.fork import fork
from clew.cli.import_ import import_
from clew.cli.inbox import inbox
from clew.cli.log import log
from clew.cli.move import move
from clew.cli.prune import prune
from clew.cli.reject import reject
from clew.cli.resume import resume
from clew.cli.retry import retry
from clew.cli.revive import revive
from clew.cli.rewind import rewind
from clew.cli.runs import runs
from clew.cli.settings import database_options
from clew.cli.show import show
from clew.cli.signal import signal
from clew.cli.status import status
from clew.cli.tag import tag
from clew.cli.threads import threads
from clew.cli.usage import usage
from clew.cli.worker import worker
from clew.errors import ClewError

__all__ = ["main"]

_INTERRUPTED = 130
_PIPE_CLOSED = 141


class _Shell(click.Group):
    """A group that ends with the exit codes of Clew's errors, and prints their hints."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name or "clew", complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except ClewError as error:
            click.echo(f"error: {error.message}", err=True)
            if error.hint:
                click.echo(f"hint:  {error.hint}", err=True)
            code = error.exit_code
        except click.Abort:  # Ctrl-C; click has ended the line
            code = _INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout once more at its end; that must find somewhere to write to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(_PIPE_CLOSED)
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """By what people want to do, not in one long list."""
        longest = max(map(len, self.commands))
        limit = formatter.width - 6 - longest
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(str(one.name).ljust(longest), one.get_short_help_str(limit)) for one in commands])

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order in which people meet them."""
        return list(self.commands)


@click.group("clew", cls=_Shell, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@database_options(outer=True)
@click.version_option(package_name="clew", message="clew %(version)s")
def main() -> None:
    """Look at what LLM agents do, answer what they ask, and travel in their history.

    THREAD@REF names a checkpoint: trip-7@3 is step 3, trip-7@~1 one before the head, trip-7@osaka the head
    of a branch, trip-7@before-payment a tag; trip-7 alone is the head of its main branch.
    """


_SECTIONS = {
    "Look": (status, threads, log, show, diff),
    "Travel": (fork, rewind, tag),
    "Answer": (inbox, approve, reject, answer),
    "Run": (worker, runs, resume, retry, revive, cancel, move, signal),
    "Keep": (usage, prune, import_, demo),
}
for _commands in _SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
