"""The stand-in for launchd: what a job of it has, and what it does when the job's main process ends."""

from __future__ import annotations

import os
import plistlib
import re
import signal
import subprocess
from typing import TYPE_CHECKING

from tests.darwin.abi import ALL_PIDS, COALITION, SHORT
from tests.darwin.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.abi import Darwin
    from tests.darwin.world import World

LABEL = "contain.test"
TARGET = f"gui/{os.getuid()}/{LABEL}"


def launchctl(xnu: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the world's."""
    return subprocess.run([xnu.launchctl, *words], capture_output=True, text=True, check=False)


def loaded(xnu: World, folder: Path, script: str, **keys: object) -> int:
    """The main process of a job that runs a shell script."""
    plist = folder / "job.plist"
    job = {"Label": LABEL, "ProgramArguments": ["/bin/sh", "-c", script], "RunAtLoad": True, **keys}
    plist.write_bytes(plistlib.dumps(job))
    done = launchctl(xnu, "bootstrap", f"gui/{os.getuid()}", str(plist))
    assert done.returncode == 0, done.stderr
    told = re.search(r"pid = (\d+)", launchctl(xnu, "print", TARGET).stdout)
    assert told is not None
    return int(told[1])


def members(darwin: Darwin, coalition: int) -> set[int]:
    """Who lives in it."""
    answers = {pid: darwin.pidinfo(pid, COALITION) for pid in darwin.listpids(ALL_PIDS)}
    return {
        pid for pid, answer in answers.items() if answer is not None and answer.coalition_id[0] == coalition
    }


def test_a_job_has_a_coalition_and_a_parent_that_are_not_ours(
    lineage: World, darwin: Darwin, tmp_path: Path
) -> None:
    """A child of pid 1; and a daemon of it, which is in no group of its, stays in the coalition."""
    main = loaded(lineage, tmp_path, "setsid sleep 600 & exec sleep 600")
    coalition = darwin.pidinfo(main, COALITION).coalition_id[0]
    assert coalition != darwin.pidinfo(os.getpid(), COALITION).coalition_id[0]
    until(lambda: darwin.pidinfo(main, SHORT).pbsi_ppid == 1, "it is launchd's")
    until(lambda: len({darwin.getsid(pid) for pid in members(darwin, coalition)}) == 2, "the daemon has left")
    assert main in members(darwin, coalition)


def test_when_its_main_process_ends_only_its_group_is_cleared(
    lineage: World, darwin: Darwin, tmp_path: Path
) -> None:
    """The daemon lives on, in the coalition: launchd promises no more. The job stays loaded, until it is removed."""
    main = loaded(lineage, tmp_path, "sleep 600 & setsid sleep 600 & wait")
    coalition = darwin.pidinfo(main, COALITION).coalition_id[0]
    until(lambda: len({darwin.getsid(pid) for pid in members(darwin, coalition)}) == 2, "the daemon has left")
    assert darwin.kill(main, signal.SIGKILL) == 0
    until(lambda: len(members(darwin, coalition)) == 1, "its group is cleared")
    (daemon,) = members(darwin, coalition)
    assert darwin.getsid(daemon) == daemon
    until(lambda: "pid = 0" in launchctl(lineage, "print", TARGET).stdout, "the job is over")
    assert launchctl(lineage, "bootout", TARGET).returncode == 0
    assert launchctl(lineage, "print", TARGET).returncode == 3


def test_a_label_is_loaded_once(lineage: World, darwin: Darwin, tmp_path: Path) -> None:
    """Status 5 for the second, 3 for what is not loaded; bootout sends TERM."""
    main = loaded(lineage, tmp_path, "exec sleep 600")
    birth = darwin.unique(main).p_uniqueid
    again = launchctl(lineage, "bootstrap", f"gui/{os.getuid()}", str(tmp_path / "job.plist"))
    assert (again.returncode, "Input/output error" in again.stderr) == (5, True)
    assert launchctl(lineage, "bootout", TARGET).returncode == 0
    until(lambda: (now := darwin.pidinfo(main, 17)) is None or now.p_uniqueid != birth, "it has ended")
    assert launchctl(lineage, "bootout", TARGET).returncode == 3
