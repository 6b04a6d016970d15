"""numpy arrays and scalars, without importing numpy: it is used only where the program has loaded it already."""

from __future__ import annotations

import re
import sys
from typing import Any

import ormsgpack

from clew.state import codec_format as f
from clew.state.codec_builtins import NotStorable, Reduced, Unknown

_KINDS = "biufcmMSUV"
_SIMPLE = re.compile(r"[<>|=][biufcSUV][0-9]{1,9}|[<>|=][mM]8(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")


def reduce_array(value: Any) -> Reduced | None:
    """(tag, payload) of a numpy array or scalar; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if type(value) is numpy.ndarray:
        if not value.dtype.itemsize:
            raise NotStorable("an array whose items have no size")
        return f.ARRAY, ormsgpack.packb([_describe(numpy, value.dtype), list(value.shape), value.tobytes()])
    if isinstance(value, numpy.generic) and _own_type(value):
        if isinstance(value, str):
            return f.NUMPY_SCALAR, ormsgpack.packb(["U", value.encode("utf-8", "surrogatepass")])
        if isinstance(value, bytes):
            return f.NUMPY_SCALAR, ormsgpack.packb(["S", bytes(value)])
        return f.NUMPY_SCALAR, ormsgpack.packb([_describe(numpy, value.dtype), value.tobytes()])
    return None


def _own_type(value: Any) -> bool:
    return type(value) is value.dtype.type and value.dtype.kind in _KINDS and type(value).__module__ == "numpy"


def _describe(numpy: Any, dtype: Any) -> Any:
    """A dtype as plain values: its text, `[base, shape]`, or `[names, formats, offsets, itemsize, aligned, titles]`."""
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise NotStorable(f"an array of {dtype} has no fixed bytes; store a list instead")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_describe(numpy, base), list(shape)]
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    titles = [field[2] if len(field) > 2 else None for field in fields]
    if not all(title is None or type(title) is str for title in titles):
        raise NotStorable("a dtype with titles that are no text")
    formats, offsets = [_describe(numpy, field[0]) for field in fields], [field[1] for field in fields]
    return [list(dtype.names), formats, offsets, dtype.itemsize, dtype.isalignedstruct, titles]


def _dtype(numpy: Any, told: Any) -> Any:
    if type(told) is str and _SIMPLE.fullmatch(told):
        dtype = numpy.dtype(told)
    elif type(told) is list and len(told) == 2:
        dtype = numpy.dtype((_dtype(numpy, told[0]), tuple(_sizes(told[1]))))
    elif type(told) is list and len(told) == 6:
        names, formats, offsets, itemsize, aligned, titles = told
        if type(names) is not list or not all(type(name) is str for name in names) or type(aligned) is not bool:
            raise ValueError("a malformed dtype")
        layout: dict[str, Any] = {"names": names, "formats": [_dtype(numpy, part) for part in formats]}
        layout |= {"offsets": _sizes(offsets), "itemsize": _sizes([itemsize])[0]}
        if type(titles) is not list or len(titles) != len(names):
            raise ValueError("a malformed dtype")
        layout |= {"titles": titles} if any(titles) else {}
        dtype = numpy.dtype(layout, align=aligned)
    else:
        raise ValueError("a malformed dtype")
    if dtype.hasobject or _describe(numpy, dtype) != told:
        raise ValueError("a malformed dtype")
    return dtype


def _sizes(sizes: Any) -> list[int]:
    if type(sizes) is not list or not all(type(size) is int and 0 <= size < 1 << 31 for size in sizes):
        raise ValueError("a malformed shape")
    return sizes


def _numpy_or_unknown() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Unknown("numpy is not loaded here: import it before reading", type_name="numpy:ndarray")
    return numpy


def _parts(payload: bytes, count: int) -> list[Any]:
    parts = ormsgpack.unpackb(payload)
    if type(parts) is not list or len(parts) != count or type(parts[-1]) is not bytes:
        raise ValueError("a malformed array")
    if ormsgpack.packb(parts) != payload:
        raise ValueError("an array that is not written the usual way")
    return parts


def build_array(payload: bytes) -> Any:
    described, shape, data = _parts(payload, 3)
    numpy = _numpy_or_unknown()
    dtype, count = _dtype(numpy, described), 1
    for size in _sizes(shape):
        count *= size
    if dtype.subdtype is not None or count * dtype.itemsize != len(data) or len(shape) > 32:
        raise ValueError("an array of another size than its bytes")
    if not dtype.itemsize:
        raise ValueError("an array whose items have no size")
    if count == 0:
        return numpy.zeros(shape, dtype)
    return numpy.frombuffer(bytearray(data), dtype).reshape(shape)


def build_scalar(payload: bytes) -> Any:
    described, data = _parts(payload, 2)
    numpy = _numpy_or_unknown()
    if described == "U":  # a text or bytes of numpy's own is no array item: that would drop NULs at the end
        return numpy.str_(data.decode("utf-8", "surrogatepass"))
    if described == "S":
        return numpy.bytes_(data)
    dtype = _dtype(numpy, described)
    if dtype.subdtype is not None or not data or dtype.itemsize != len(data) or dtype.kind in "SU":
        raise ValueError("a number of another size than its bytes")
    return numpy.frombuffer(bytearray(data), dtype)[0]
