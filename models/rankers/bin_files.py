"""Binned rows as LightGBM's binary files, read only where this user's own xlarank wrote them.

LightGBM believes such a file: sizes and offsets in it are followed, so one from a stranger could do anything.
Beside each file lies a code (HMAC-SHA-256) over its content and what it is of, with a secret that is kept in the
user's home and never in a workspace. A file without the right code (damaged, half written, copied from elsewhere,
of other rows) is made anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import lightgbm as lgb

from xlarank.data.errors import XlarankError
from xlarank.data.files import atomic_write, regular_no_link
from xlarank.models.rankers.lightgbm_data import hush

#: Files of one folder: choices of columns, orders.
_MOST: Final = 8
_BLOCK: Final = 2**20
_SECRET_BYTES: Final = 32


class BinFiles:
    """A folder of binned rows; the oldest beyond eight go, and all of them may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._secret = user_secret()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other process of this machine reads or makes bins here."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            stream = open(self.folder / ".turn", "a", opener=regular_no_link)
        except OSError:  # nothing can be kept here, so nobody has to wait
            yield
            return
        with stream:
            with suppress(ImportError, OSError):  # no such locks on Windows and some network file systems
                import fcntl

                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def read(self, identity: dict[str, Any], params: dict[str, Any]) -> lgb.Dataset | None:
        """The bins of what ``identity`` says, constructed; None where there are none to be trusted."""
        path = self._path(identity)
        if self._secret is None:
            return None
        try:
            known = path.with_suffix(".code").read_text(encoding="ascii")
            if not hmac.compare_digest(known, self._code(identity, path)):
                return None
            found = lgb.Dataset(str(path), params=params).construct()
            os.utime(path)
        except (OSError, UnicodeError, TypeError, lgb.basic.LightGBMError):
            return None
        return found

    def write(self, identity: dict[str, Any], whole: lgb.Dataset) -> None:
        """Keep bins for later; where that fails (a full disk, no home for the secret) they are only not kept."""
        path = self._path(identity)
        if self._secret is None:
            return
        with suppress(OSError, XlarankError, lgb.basic.LightGBMError):
            path.with_suffix(".code").unlink(missing_ok=True)
            with atomic_write(path) as partial:
                partial.unlink()  # LightGBM writes no file over another
                hush()
                whole.save_binary(partial)
                code = self._code(identity, partial)
            with atomic_write(path.with_suffix(".code")) as partial:
                partial.write_text(code, encoding="ascii")
            self._forget()

    def _forget(self) -> None:
        """Remove the files that were not used for longest."""
        files = sorted(self.folder.glob("[!.]*.bin"), key=lambda path: path.stat().st_mtime)
        for path in files[:-_MOST]:
            path.with_suffix(".code").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _path(self, identity: dict[str, Any]) -> Path:
        return self.folder / f"{hashlib.sha256(_text(identity)).hexdigest()[:32]}.bin"

    def _code(self, identity: dict[str, Any], path: Path) -> str:
        assert self._secret is not None
        code = hmac.new(self._secret, _text(identity) + b"\0", hashlib.sha256)
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                code.update(block)
        return code.hexdigest()


def _text(identity: dict[str, Any]) -> bytes:
    return json.dumps(identity, sort_keys=True).encode()


def user_secret() -> bytes | None:
    """Random bytes that this user's home keeps, made when first asked for; None where it cannot be written to."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        path = state / "xlarank" / "secret"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(secrets.token_bytes(_SECRET_BYTES))
            try:
                os.link(fresh, path)  # unlike a rename it leaves the secret of a process that was quicker
            finally:
                fresh.unlink()
        found = path.read_bytes()
    except FileExistsError:
        found = path.read_bytes()
    except (OSError, RuntimeError):  # no home
        return None
    return found if len(found) == _SECRET_BYTES else None
