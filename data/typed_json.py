"""Validated conversion of JSON into dataclasses."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar, cast

T = TypeVar("T")


def from_json(kind: type[T], value: Any, where: str = "it") -> T:
    """Return a dataclass from the JSON of `dataclasses.asdict`.

    Fields may be numbers, text, enums, lists, ``dict[str, ...]``, dataclasses, ``Any``, or a union of these; those
    with a default may be missing. Raises `TypeError` naming the entry that has another type.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{where} is no JSON object")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind)) if field.init}
    for name in value:
        if name not in fields:
            raise TypeError(f"{where} has the unknown entry {str(name)[:60]!r}")
    for name, field in fields.items():
        if name not in value and field.default is field.default_factory is dataclasses.MISSING:
            raise TypeError(f"{where} lacks {name}")
    return kind(**{name: _checked(hints[name], entry, name) for name, entry in value.items()})


def _checked(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        for member in arguments:
            with suppress(TypeError):
                return _checked(member, value, name)
    elif dataclasses.is_dataclass(kind):
        return from_json(cast(type[Any], kind), value, name)
    elif origin in (list, tuple) and isinstance(value, list):
        return origin(_checked(arguments[0], entry, f"an entry of {name}") for entry in value)
    elif origin is dict and isinstance(value, dict):
        return {str(key): _checked(arguments[1], entry, f"{name}.{str(key)[:60]}") for key, entry in value.items()}
    elif isinstance(kind, type) and issubclass(kind, Enum):
        with suppress(ValueError):
            return kind(value)
    elif kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    elif kind is Any or (kind in (bool, int, str, type(None)) and type(value) is kind):
        return value
    raise TypeError(f"{name} is {str(value)[:60]!r}, not {getattr(kind, '__name__', kind)}")
