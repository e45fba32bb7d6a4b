"""Configs as nested dicts, which are the tables of docs/config.md, and their TOML text."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]

_SECTIONS = ("data", "model", "train", "run")


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(each, f'{where}.{key}')}"
                               for key, each in value.items() if each is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(each, f"{where}[{i}]") for i, each in enumerate(value)) + "]"
    if hasattr(value, "__index__"):
        return str(value.__index__())
    if hasattr(value, "__float__"):
        number = float(value)
        text = repr(number)
        if text in ("inf", "-inf", "nan"):
            raise ValueError(f"{where}: got {text}, expected a finite number")
        return text
    if isinstance(value, os.PathLike):
        return _value(os.fspath(value), where)
    raise TypeError(f"{where}: got {type(value).__name__}, expected a number, str, bool, list or dict")


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"config: got the key {key!r}, expected a str")
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _quoted(key)


def to_toml(config: Config) -> str:
    """Returns the TOML text of a config without keys whose value is None."""
    return "".join(f"[{section}]\n" + "".join(f"{_key(key)} = {_value(value, f'{section}.{key}')}\n"
                                              for key, value in table.items() if value is not None)
                   for section, table in config.items())


def check(config: Mapping[str, Any]) -> Config:
    """Returns a copy of a config with every section; the library checks their contents."""
    result: Config = {section: {} for section in _SECTIONS}
    for section, table in config.items():
        if section not in result:
            raise ValueError(f"config: got a section {section!r}, expected {', '.join(_SECTIONS)}")
        if not isinstance(table, Mapping):
            raise TypeError(f"config[{section!r}]: got {type(table).__name__}, expected a dict")
        result[section] = copy.deepcopy(dict(table))
    return result


def from_toml(text: str) -> Config:
    import tomllib

    return check(tomllib.loads(text))


def read(path: str | os.PathLike[str]) -> Config:
    """Reads the config of a TOML file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    import tomllib

    try:
        return check(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
