"""What this machine's make and ninja understand of a jobserver: asked once, remembered as long as the file stays."""

from __future__ import annotations

import os
import select

from contain.budget import beside
from contain.budget.jobserver import FIFO, PIPE, form_for, make_version

FIRST_NINJA = (1, 13)
"""The first with a jobserver client, of the FIFO alone. An explicit -j turns it off."""
PATIENCE_MS = 2000
BANNER_BYTES = 4096


def form_here(folder: str, path: str) -> str:
    """``fifo`` or ``pipe``, for the make that is first on ``path``; ``folder`` is where the answer is kept."""
    banner = _banner(folder, path, "make")
    if banner is None:
        return form_for(None)
    # One that does not answer is taken for an old one: every make knows the pipe.
    return form_for(make_version(banner)) if banner else PIPE


def ninja_takes_tokens(folder: str, path: str, form: str | None) -> bool:
    """Whether the ninja on ``path`` is a client of a jobserver in this form; else it must be told its width."""
    if form != FIFO:
        return False
    words = (_banner(folder, path, "ninja") or "").split(".")
    return tuple(int(word) for word in words[:2] if word.isdigit()) >= FIRST_NINJA


def _banner(folder: str, path: str, tool: str) -> str | None:
    """The first line of ``TOOL --version``, "" where it does not say, None where there is no such tool."""
    found = _find(path, tool)
    if found is None:
        return None
    stat = os.stat(found)
    key = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
    memory = os.path.join(folder, f"version-{tool}")
    try:
        with open(memory, encoding="utf-8") as file:
            remembered, _, banner = file.read().partition("\n")
        if remembered == key:
            return banner
    except (OSError, ValueError):
        pass  # nobody has asked yet, or another one was asked
    banner = _ask(found).partition("\n")[0]
    try:
        beside.replace(memory, f"{key}\n{banner}")
    except OSError:
        pass  # a full disk costs the next one the asking
    return banner


def _find(path: str, tool: str) -> str | None:
    for folder in path.split(os.pathsep):
        program = os.path.join(folder or ".", tool)
        if os.access(program, os.X_OK) and os.path.isfile(program):
            return program
    return None


def _ask(program: str) -> str:
    """What ``--version`` says, cut; "" for one that cannot be started, or does not answer."""
    read, write = os.pipe()
    try:
        pid = os.posix_spawn(
            program,
            [os.path.basename(program), "--version"],
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
        return ""
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
    return banner.decode("utf-8", "replace")
