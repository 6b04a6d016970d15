"""Types by name: who may be built, what happens to those who may not, and how versions grow."""

from __future__ import annotations

import dataclasses
import enum
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from clew.errors import BadInput
from clew.state import codec, codec_read
from clew.state import registry as registering
from clew.state.registry import Registry, register, upcast
from clew.state.values import Opaque, UnknownType
from clew.testing import exactly_equal


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a process of its own: nothing registered, nothing warned of."""
    monkeypatch.setattr(registering, "registry", Registry())
    monkeypatch.setattr(codec_read, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownType)
        yield


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on as another process that has met no type."""
    monkeypatch.setattr(registering, "registry", Registry())


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int = 0


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class Slotted:
    __slots__ = ("__hidden", "a")

    def __init__(self) -> None:
        self.a = 1
        self.__hidden = 2


def same(a: Any) -> bool:
    return exactly_equal(codec.decode(codec.encode(a)), a)


def test_a_type_that_was_not_met_is_opaque_and_saves_back_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (Order("tea"), Colour.RED, Point(1)):
        encoded = codec.encode({"deep": [(value,)]})
        forget(monkeypatch)
        back = codec.decode(encoded)
        opaque = back["deep"][0][0]
        assert type(opaque) is Opaque
        assert opaque.type_name == f"{__name__}:{type(value).__qualname__}"
        assert opaque.version == 1
        assert f"clew.register({type(value).__qualname__})" in repr(opaque)
        assert codec.encode(back) == encoded
        register(type(value))
        assert exactly_equal(codec.decode(encoded), {"deep": [(value,)]})
        forget(monkeypatch)


def test_one_warning_per_type_names_the_line_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = codec.encode([Order("a"), Order("b")])
    forget(monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        codec.decode(encoded)
        codec.decode(encoded)
    assert [warning.category for warning in caught] == [UnknownType]
    assert f"from {__name__} import Order; clew.register(Order)" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_warning_made_an_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = codec.encode([Order("a")])
    forget(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownType)
        with pytest.raises(UnknownType):
            codec.decode(encoded)


def test_names_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    register("shop.Order", version=3)(Order)
    encoded = codec.encode(Order("tea"))
    assert b"shop.Order" in encoded
    assert same(Order("tea"))
    forget(monkeypatch)
    assert '@clew.register("shop.Order")' in repr(codec.decode(encoded))


def test_registering_in_every_spelling() -> None:
    assert register(Order) is Order
    assert register(Order, version=1) is Order
    assert register()(Colour) is Colour
    assert register("p")(Point) is Point
    assert same(Point(1, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: register("a")(Order) and register("a")(Point), "taken by .*Order"),
        (lambda: register("a")(Order) and register("b")(Order), "registered as 'a' already"),
        (lambda: register("a")(Order) and register("a", version=2)(Order), "other arguments"),
        (lambda: register(Order, encode=str), "only one of encode and decode"),
        (lambda: register(Order, version=0), "whole number"),
        (lambda: register("")(Order), "a type's name"),
        (lambda: register("a", name="b"), "two names"),
        (lambda: register(type("Sub", (dict,), {})), "taken apart by fields"),
        (lambda: upcast("a", to=1)(str), "version 2 or later"),
        (lambda: upcast("a", to=2)(str) and upcast("a", to=2)(repr), "registered already"),
    ],
)
def test_what_cannot_be_registered_says_why(call: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()


def test_a_reloaded_class_takes_the_place_of_the_old_one() -> None:
    def define() -> type:
        @register("shop.Item", version=2)
        @dataclasses.dataclass
        class Item:
            a: int

        return Item

    old, new = define(), define()
    encoded = codec.encode(old(1))
    assert type(codec.decode(encoded)) is new
    assert codec.encode(new(1)) == encoded


def test_of_local_classes_the_latest_wins() -> None:
    def define() -> type:
        @dataclasses.dataclass
        class Local:
            a: int

        return Local

    first, second = define(), define()
    assert same(first(1))
    encoded = codec.encode(second(1))
    assert type(codec.decode(encoded)) is second
    assert codec.encode(first(1)) == encoded


def test_plain_classes_come_back_with_their_attributes_and_no_init() -> None:
    register(Slotted)
    register(Money)
    assert same(Slotted())
    assert same([Money(3)])
    parts = codec.take_apart(Money(3))
    assert parts is not None
    assert parts.fields == {"cents": 3}


def test_encode_and_decode_of_ones_own() -> None:
    register(Money, encode=lambda money: [money.cents], decode=lambda state: Money(*state))
    assert same({"a": (Money(3), Money(4))})
    assert codec.take_apart(Money(3)) is None


def test_a_decode_that_fails_gives_opaque_with_the_reason() -> None:
    register(Money, encode=lambda money: money.cents, decode=lambda state: state["no"])
    encoded = codec.encode(Money(3))
    back = codec.decode(encoded)
    assert type(back) is Opaque
    assert "TypeError" in back.reason
    assert codec.encode(back) == encoded


def test_building_runs_nothing_of_the_class() -> None:
    ran: list[str] = []

    @dataclasses.dataclass
    class Loud:
        a: int = 0

        def __post_init__(self) -> None:
            ran.append("post_init")

        def __setattr__(self, name: str, value: Any) -> None:
            ran.append("setattr")
            object.__setattr__(self, name, value)

        def __setstate__(self, state: Any) -> None:
            ran.append("setstate")

    encoded = codec.encode(Loud(5))
    ran.clear()
    assert codec.decode(encoded).a == 5
    assert not ran


# --- versions --------------------------------------------------------------------------------------------------------


def version(number: int, **fields: Any) -> type:
    """The class "shop.Order" as it was in that version, in a process of its own."""
    made = dataclasses.make_dataclass("Order", [(name, Any, default) for name, default in fields.items()])
    registering.registry = Registry()
    register("shop.Order", version=number)(made)
    return made


@pytest.fixture
def old() -> bytes:
    return codec.encode([version(1, item="tea", count=2)()])


def test_a_new_field_gets_its_default(old: bytes) -> None:
    order = version(1, item="", count=0, currency="EUR")
    assert codec.decode(old) == [order("tea", 2, "EUR")]


def test_a_default_factory_is_called_for_each(old: bytes) -> None:
    made = dataclasses.make_dataclass(
        "Order", ["item", "count", ("lines", list, dataclasses.field(default_factory=list))]
    )
    registering.registry = Registry()
    register("shop.Order")(made)
    first, second = codec.decode(old), codec.decode(old)
    assert first[0].lines == []
    assert first[0].lines is not second[0].lines


def test_a_new_field_without_default_is_opaque(old: bytes) -> None:
    made = dataclasses.make_dataclass("Order", ["item", "count", "currency"])
    registering.registry = Registry()
    register("shop.Order")(made)
    back = codec.decode(old)
    assert "'currency'" in back[0].reason
    assert codec.encode(back) == old


def test_a_field_that_is_gone_is_never_dropped(old: bytes) -> None:
    version(1, item="")
    back = codec.decode(old)
    assert type(back[0]) is Opaque
    assert "'count'" in back[0].reason
    assert codec.encode(back) == old


def test_upcasts_are_chained(old: bytes) -> None:
    order = version(3, name="", price=0)
    upcast("shop.Order", to=2)(lambda fields: {"name": fields["item"], "count": fields["count"]})
    upcast("shop.Order", to=3)(lambda fields: {"name": fields["name"], "price": fields["count"] * 10})
    assert codec.decode(old) == [order("tea", 20)]


@pytest.mark.parametrize("have", [2, 3])
def test_a_missing_link_is_opaque(old: bytes, have: int) -> None:
    version(3, item="", count=0)
    upcast("shop.Order", to=have)(lambda fields: fields)
    back = codec.decode(old)
    assert "no upcast from version" in back[0].reason
    assert codec.encode(back) == old


@pytest.mark.parametrize(
    ("step", "reason"), [(lambda fields: fields["no"], "KeyError"), (lambda fields: 3, "gave a int")]
)
def test_an_upcast_that_fails_is_opaque(old: bytes, step: Any, reason: str) -> None:
    version(2, item="", count=0)
    upcast("shop.Order", to=2)(step)
    back = codec.decode(old)
    assert reason in back[0].reason
    assert codec.encode(back) == old


def test_a_newer_version_is_opaque_and_saves_back_unchanged() -> None:
    encoded = codec.encode({"a": version(3, item="tea")()})
    version(2, item="")
    back = codec.decode(encoded)
    assert "newer" in back["a"].reason
    assert codec.encode(back) == encoded


def test_a_member_that_is_gone_is_opaque() -> None:
    register("shop.Colour")(enum.Enum("Colour", ["RED", "BLUE"]))
    encoded = codec.encode([registering.registry.by_name["shop.Colour"].cls["BLUE"]])  # type: ignore[index]
    registering.registry = Registry()
    register("shop.Colour")(enum.Enum("Colour", ["RED"]))
    back = codec.decode(encoded)
    assert "no member 'BLUE'" in back[0].reason
    assert codec.encode(back) == encoded


def test_another_kind_of_class_under_the_name_is_opaque() -> None:
    encoded = codec.encode([version(1, item="tea")()])
    registering.registry = Registry()
    register("shop.Order")(enum.Enum("Order", ["RED"]))
    back = codec.decode(encoded)
    assert "now of kind enum" in back[0].reason
    assert type(back[0]) is Opaque
