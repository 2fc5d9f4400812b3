"""Places: which file system they are on, on either processor, and a way to a socket whose path is too long."""

from __future__ import annotations

import os
import select
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.budget import nested
from contain.darwin.backend import DarwinBackend
from contain.errors import NestedUnanswered
from contain.job import new_id
from receipts import Unsafe, open_place

if TYPE_CHECKING:
    from tests.darwin.world import World

SUN_PATH_BYTES = 104


@pytest.mark.parametrize("processor", ["arm64", "x86_64"])
def test_a_place_is_trusted_by_the_name_of_its_file_system(
    xnu: World, tmp_path: Path, processor: str
) -> None:
    """Each processor has its own call; a network's file system is refused, and so is one that cannot be told."""
    backend = DarwinBackend(library=xnu.library if processor == "arm64" else xnu.intel_library)
    root = str(tmp_path / "root")
    none = str(tmp_path / "no-proc")  # as on a Mac, where no mount table tells more
    with open_place(root, proc=none, statfs_type=backend.file_system_magic) as place:
        assert place.filesystem == "apfs"
    xnu.control("sysctl name=fakexnu.filesystem value=smbfs")
    with pytest.raises(Unsafe, match="smbfs, a network file system"):
        open_place(root, proc=none, statfs_type=backend.file_system_magic)
    xnu.control("fail call=fstatfs errno=5")
    with pytest.raises(Unsafe, match="cannot be told") as refused:
        open_place(root, proc=none, statfs_type=backend.file_system_magic)
    assert "mountinfo" not in str(refused.value)  # no advice of another system


def test_a_shortcut_leads_to_a_folder_whose_path_is_too_long(xnu: World, tmp_path: Path) -> None:
    """A socket can be bound below it, and is where it was meant to be; nothing of the way is left."""
    folder = tmp_path / ("long" * 25) / "nested"
    folder.mkdir(parents=True)
    shortcut = DarwinBackend(library=xnu.library).shortcut(str(folder))
    name = "5b1e0f7c-8d2a-4b3f-a0c4-6f1d2e3b4c5d"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{shortcut.path}/{name}")
        assert len(os.fsencode(f"{shortcut.path}/{name}")) < SUN_PATH_BYTES
    shortcut.close()
    assert (folder / name).is_socket()
    assert not os.path.lexists(shortcut.path)
    assert not Path(shortcut.path).parent.exists()


def test_a_shortcut_to_nothing_is_said_at_once(xnu: World) -> None:
    """Whoever asks there goes on: no socket, no job around us."""
    with tempfile.TemporaryDirectory() as folder, pytest.raises(FileNotFoundError):
        DarwinBackend(library=xnu.library).shortcut(f"{folder}/missing")


def test_a_request_reaches_a_home_whose_path_is_too_long(xnu: World, tmp_path: Path) -> None:
    """The wrapper listens and the asker connects by short ways of their own; here nothing is proven yet: refused."""
    root = tmp_path / ("long" * 25)
    permit = new_id()
    backend = DarwinBackend(library=xnu.library)
    answerer = nested.Answerer(str(root), "registry", permit, backend, lambda _: ("", ""))
    assert (root / nested.FOLDER / permit).is_socket()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(nested.ask, str(root), {nested.VARIABLE: permit}, backend, ())
        while not asked.done():
            answerer.turn(select.select(answerer.fds(), [], [], 0.05)[0])
    answerer.close()
    with pytest.raises(NestedUnanswered, match="could not be seen who asks"):
        asked.result()
    assert list((root / nested.FOLDER).iterdir()) == []
