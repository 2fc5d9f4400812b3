"""Which runs are of one kind. A key is text: ``class/tool/lane/project``, for a person to copy."""

from __future__ import annotations

import os
from _blake2 import blake2b  # hashlib brings OpenSSL along: as long as a whole launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.classes import JobClass

DIGEST_BYTES = 8
NO_TOOL = "-"
GIT = ".git"
POINTER = "gitdir: "
WORKTREES = "/worktrees/"
MOST_BYTES = 4096


def key_of(asked: JobClass, command: str, cwd: str) -> str:
    """The key of a command that was recognised as ``asked``. A focused call has a lane, so a key, of its own.

    Of the project only a digest is in it, so that no path is on disk. The base name of a program that no table knows
    is digested with it: two programs have two costs, and neither is named.
    """
    seed = project_of(cwd)
    if not asked.tool:
        seed += f"\0{os.path.basename(command)}"
    digest = blake2b(seed.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).hexdigest()
    return f"{asked.name}/{asked.tool or NO_TOOL}/{asked.lane}/{digest}"


def project_of(cwd: str) -> str:
    """The real path of the nearest directory upwards that holds ``.git``, else of ``cwd`` itself.

    A worktree of git is the same project as the repository that it was made from: agents have one each.
    """
    here = folder = os.path.realpath(cwd)
    while True:
        mark = os.path.join(folder, GIT)
        if os.path.lexists(mark):
            return _made_from(mark) or folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return here
        folder = parent


def _made_from(mark: str) -> str | None:
    """The repository of a worktree: there ``.git`` is a file that tells where its own part of the other is."""
    if not os.path.isfile(mark):
        return None  # a directory: the repository itself
    try:
        with open(mark, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(MOST_BYTES).strip()
    except OSError:
        return None
    path, found, name = text.rpartition(WORKTREES)
    if not found or "/" in name or not path.startswith(POINTER):
        return None  # a submodule is a project of its own
    store = os.path.realpath(os.path.join(os.path.dirname(mark), path.removeprefix(POINTER)))
    return store.removesuffix(f"/{GIT}")
