"""A short path to a directory, for the address of a socket: sun_path of Darwin's unix(4) has 104 bytes.

A symbolic link in a private directory of its own, for the moment of one bind or connect. Darwin has no path by the
number of a descriptor that leads on into a directory, and a chdir would be every thread's.
"""

from __future__ import annotations

import os
import tempfile

FOLDER = "/tmp"  # noqa: S108 - a private directory in it, by a name that nobody can foresee
NAME = "d"


class Shortcut:
    """See contain.backend.Shortcut."""

    def __init__(self, folder: str) -> None:
        """Raises OSError. A folder that is not there is said at once: its link would say it later, or never."""
        os.stat(folder)
        self._home = tempfile.mkdtemp(dir=FOLDER, prefix="contain-")
        self.path = os.path.join(self._home, NAME)
        try:
            os.symlink(os.path.abspath(folder), self.path)
        except OSError:
            os.rmdir(self._home)
            raise

    def close(self) -> None:
        """See contain.backend.Shortcut. What cannot be removed holds nothing but a path."""
        try:
            os.unlink(self.path)
            os.rmdir(self._home)
        except OSError:
            pass
