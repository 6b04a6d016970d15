"""Values as people type them: JSON, else text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click


def json_or_text(text: str) -> Any:
    """What JSON says, and what is no JSON as text. NaN is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def key_values(texts: Iterable[str], hint: str = "--set") -> dict[str, Any]:
    """`city=Osaka`, `days=[1, 2]` as a dict."""
    return dict(_pair(text, hint) for text in texts)


def _pair(text: str, hint: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=hint)
    return key, json_or_text(value)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
