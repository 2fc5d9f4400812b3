"""Where its questions have no true answer the backend refuses to start (docs/DARWIN-REPORTS.md)."""

from __future__ import annotations

import ctypes.util
import errno
from typing import TYPE_CHECKING

import pytest

from contain.darwin.backend import DarwinBackend
from contain.errors import SetupFailed
from tests.darwin.jobs import anchor_program, program
from tests.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World

FAULTS = (
    "deny all",
    "short flavour=17 bytes=40",
    "short flavour=13 bytes=60",
    "truncate keep=0",
    f"fail call=listpids errno={errno.EPERM}",
    f"fail call=getsid errno={errno.EPERM}",
    f"fail call=sysctl errno={errno.EPERM}",
    f"fail call=sysctlbyname errno={errno.ENOENT}",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_probe_that_fails_is_a_refusal(xnu: World, fault: str) -> None:
    """Each question that an end is proven with is asked first, of ourselves; with nothing wrong it is no refusal."""
    backend = DarwinBackend(library=xnu.library, program=anchor_program())
    backend.check_host()
    xnu.control(fault)
    with pytest.raises(SetupFailed):
        backend.check_host()


@pytest.mark.parametrize("lacks", ["answers", "calls"])
def test_nothing_runs_where_a_probe_fails(xnu: World, receipts: Path, tmp_path: Path, lacks: str) -> None:
    """A named refusal with advice and an exit code, and no receipt: of a sandbox, and of a system without the calls."""
    library = xnu.library if lacks == "answers" else ctypes.util.find_library("m")
    assert library is not None
    xnu.control(f"fail call=listpids errno={errno.EPERM}")
    with Session(receipts, program=program(library)) as job:
        job.request("touch", f"{tmp_path}/ran")
        refused = job.finish()
    reason, code = ("setup-failed", 71) if lacks == "answers" else ("unsupported", 79)
    assert (refused["event"], refused["reason"], job.process.returncode) == ("refused", reason, code), refused
    assert refused["advice"]
    assert not (tmp_path / "ran").exists()
    assert list(receipts.glob("*.json")) == []
