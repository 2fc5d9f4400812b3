"""Which form of a jobserver this machine's make understands: asked once, and remembered as long as the file stays."""

from __future__ import annotations

import os
import select

from contain.budget.jobserver import PIPE, form_for, make_version

REMEMBERED = "make"
PATIENCE_MS = 2000
BANNER_BYTES = 4096


def form_here(folder: str, path: str) -> str:
    """``fifo`` or ``pipe``, for the make that is first on ``path``; ``folder`` is where the answer is kept."""
    found = _find(path)
    if found is None:
        return form_for(None)
    stat = os.stat(found)
    key = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
    memory = os.path.join(folder, REMEMBERED)
    try:
        with open(memory, encoding="ascii") as file:
            remembered, _, form = file.read().strip().partition(" ")
        if remembered == key and form:
            return form
    except (OSError, ValueError):
        pass  # nobody has asked yet, or another make was asked
    form = _ask(found)
    temporary = f"{memory}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{key} {form}\n")
    os.rename(temporary, memory)
    return form


def _find(path: str) -> str | None:
    for folder in path.split(os.pathsep):
        program = os.path.join(folder or ".", "make")
        if os.access(program, os.X_OK) and os.path.isfile(program):
            return program
    return None


def _ask(program: str) -> str:
    """The form by the banner. One that does not answer is taken for an old one: every make knows the pipe."""
    read, write = os.pipe()
    try:
        pid = os.posix_spawn(
            program,
            ["make", "--version"],
            {"LC_ALL": "C"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, write, 1),
                (os.POSIX_SPAWN_DUP2, write, 2),
            ],
            setsigmask=(),
        )
    except OSError:
        os.close(read)
        return PIPE
    finally:
        os.close(write)
    try:
        poll = select.poll()
        poll.register(read, select.POLLIN)
        banner = os.read(read, BANNER_BYTES) if poll.poll(PATIENCE_MS) else b""
    finally:
        os.close(read)
        os.kill(pid, 9)  # our own child, and not reaped yet: the number is its
        os.waitpid(pid, 0)
    return form_for(make_version(banner.decode("utf-8", "replace"))) if banner else PIPE
