"""How a PostgreSQL URL becomes connection settings, and what of it may be shown."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clew.errors import BadInput

DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "client_encoding": "utf8",
    "fallback_application_name": "clew",
}
"""What the URL does not say. A dead peer is noticed within half a minute. All of it is the client library's own, or
known to every pooler; limits on statements are set inside transactions instead, for poolers refuse `options`."""


def parse(url: str) -> tuple[str, str]:
    """The settings to connect with, and the URL without its password."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        # The library's message may quote a part of the URL, and that part may be the password.
        message = "this PostgreSQL URL cannot be understood"
        hint = "postgresql://user:password@host:port/database, with special characters percent-encoded"
        raise BadInput(message, hint=hint) from None
    if "@" in str(given.get("host", "")):
        message = "this PostgreSQL URL has more than one @ before the host"
        raise BadInput(message, hint="write an @ in the password as %40")
    user = f"{given['user']}@" if "user" in given else ""
    port = f":{given['port']}" if "port" in given else ""
    shown = f"postgresql://{user}{given.get('host', 'localhost')}{port}/{given.get('dbname', '')}"
    return make_conninfo("", **{**DEFAULTS, **given}), shown
