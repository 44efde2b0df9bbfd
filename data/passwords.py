"""Removal of passwords from addresses of servers before they are shown or stored."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

#: Up to the last @ of a word: a password with an @ of its own is a mistake that shall not be printed either.
_USER: Final = re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s:/@?]*):[^\s]*@", re.IGNORECASE)
_QUERY: Final = re.compile(r"([?&;](?:password|passwd|pwd|passfile|sslpassword)=)[^\s&;'\"]*", re.IGNORECASE)


def without_passwords(value: Any) -> Any:
    """A text, or all texts within lists and dictionaries, with ``***`` where an address has its password.

    >>> without_passwords("--storage=postgresql+psycopg://me:secret@host:5432/tuning")
    '--storage=postgresql+psycopg://me:***@host:5432/tuning'
    >>> without_passwords(["postgresql:///tuning?host=/run/db&password=secret", 3])
    ['postgresql:///tuning?host=/run/db&password=***', 3]
    """
    if isinstance(value, str):
        return _QUERY.sub(r"\1***", _USER.sub(r"\1:***@", value))
    if isinstance(value, dict):
        return {name: without_passwords(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_passwords(each) for each in value]
    return value


def passwords_of(address: str) -> set[str]:
    """The passwords of one address, as written there and as meant by it (``%40`` is an @).

    >>> sorted(passwords_of("postgresql://me:p%40ss@host/db?password=other"))
    ['other', 'p%40ss', 'p@ss']
    """
    written = {found.group(0).split(":", 2)[2][:-1] for found in _USER.finditer(address)}
    written |= {found.group(0).split("=", 1)[1] for found in _QUERY.finditer(address)}
    return {text for each in written for text in (each, unquote(each)) if text}


def without(text: str, passwords: set[str]) -> str:
    """A text that a library made of an address, without the passwords of that address."""
    for password in sorted(passwords, key=len, reverse=True):
        text = text.replace(password, "***")
    return str(without_passwords(text))
