"""The pydantic models that the strategies use; imported only where pydantic is installed."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

T = TypeVar("T")


class Trip(BaseModel):
    city: Any
    notes: list[Any] = Field(default_factory=list)
    _secret: Any = PrivateAttr(default=7)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    known: Any = None


class Box(BaseModel, Generic[T]):
    item: T


def noting(value: object) -> Trip:
    """A trip with something in its private attribute."""
    trip = Trip(city="Tokyo")
    trip._secret = value
    return trip
