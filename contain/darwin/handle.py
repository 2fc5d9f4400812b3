"""The one handle through which every Darwin call goes: the system's library, or one that tests built.

cffi in ABI mode: no compiler is needed where it runs. Its parser is a heavy import, so it is loaded with the first
handle and not with this module.
"""

from __future__ import annotations

import errno
import os

from contain.darwin import layout
from contain.errors import UnsupportedPlatform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Handle:
    """A loaded library. ``ffi`` makes its structures, ``call`` its calls."""

    def __init__(self, path: str | None = None) -> None:
        """``path``: of a library with libSystem's names; None is the system's own. Raises UnsupportedPlatform."""
        import cffi

        self.path = path
        self.ffi: Any = cffi.FFI()
        self.ffi.cdef(layout.DECLARATIONS)
        try:
            self.lib: Any = self.ffi.dlopen(path)
        except OSError as error:
            raise UnsupportedPlatform(
                f"The system's library cannot be loaded ({error}).", advice="Report this: it is a bug."
            ) from None

    def has(self, name: str) -> bool:
        """Whether this system has that call: some came late, and are declared all the same."""
        try:
            getattr(self.lib, name)
        except AttributeError:
            return False
        return True

    def call(self, name: str, *arguments: object) -> tuple[int, int]:
        """(result, errno) of a call; errno is 0 where it said nothing. Interrupted calls are made again."""
        function: Callable[..., int] = getattr(self.lib, name)
        while True:
            self.ffi.errno = 0
            result = function(*arguments)
            number: int = self.ffi.errno
            if number != errno.EINTR:
                return int(result), number


def failed(number: int) -> OSError:
    """The exception of an errno."""
    return OSError(number, os.strerror(number))


_handles: dict[str | None, Handle] = {}


def opened(path: str | None = None) -> Handle:
    """The handle of a library, loaded once in a process. Raises UnsupportedPlatform."""
    if path not in _handles:
        _handles[path] = Handle(path)
    return _handles[path]
