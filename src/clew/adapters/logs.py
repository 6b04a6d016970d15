"""Log records that say where they come from: run, thread and node. Needs nothing but the standard library."""

from __future__ import annotations

import logging
from typing import Any

from clew import observing

FIELDS = ("tenant", "thread", "branch", "run", "agent", "node")


class RunFilter(logging.Filter):
    """Give each record `clew_run`, `clew_thread`, `clew_branch`, `clew_agent`, `clew_node` and `clew_tenant`.

    Add it to a handler, and name the fields in its format; outside of a run they are "-". What formats records as JSON
    finds them too.

        handler.addFilter(RunFilter())
        handler.setFormatter(logging.Formatter("%(clew_run)s %(clew_node)s %(message)s"))

    >>> record = logging.makeLogRecord({"msg": "hello"})
    >>> RunFilter().filter(record), record.clew_run
    (True, '-')
    """

    def __init__(self) -> None:
        super().__init__()

    def filter(self, record: logging.LogRecord) -> bool:
        """Nothing is filtered out: records get their fields on the way through."""
        fields: dict[str, Any] = record.__dict__
        where = observing.where.get()
        for name in FIELDS:
            value = None if where is None else getattr(where, name)
            fields.setdefault(f"clew_{name}", "-" if value is None else value)
        return True
