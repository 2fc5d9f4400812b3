"""A power loss at the moment a state was said: `python powerloss.py DIRECTORY KIND`, in a mount namespace of its own.

The receipts are on ext4 in a loop file. "Power loss" is a copy of that file, taken when the child has said a state
and waits: it holds what has reached the disk and nothing else. The copy is mounted: its journal is replayed as at boot.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from receipts import Receipt
from tests.receipts.lives import job, open_store
from tests.receipts.tracing import child, environment


def run(*command: str) -> None:
    """Run a tool of the machine."""
    subprocess.run(command, check=True, capture_output=True)


def after(base: Path, turn: int) -> str:
    """Return the state in a copy of the disk, after its recovery; ABSENT or UNREADABLE where there is none."""
    copy, point = base / f"copy-{turn}.img", base / "copy"
    run("cp", "--sparse=always", str(base / "disk.img"), str(copy))
    run("mount", "-o", "loop", str(copy), str(point))
    script = (
        "import sys; from powerloss import state; from pathlib import Path; print(state(Path(sys.argv[1])))"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-B", "-c", script, str(point / "receipts")],
        env={**environment(), "PYTHONPATH": f"{environment()['PYTHONPATH']}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    run("umount", str(point))
    copy.unlink()
    return found


def state(directory: Path) -> str:
    """Return the state of job 1 in a directory."""
    if not directory.exists():
        return "ABSENT"
    found = open_store(directory).find(job(1))
    if found is None:
        return "ABSENT"
    return found.state if isinstance(found, Receipt) else "UNREADABLE"


def main(base: Path, kind: str) -> None:
    """Print a list of [said, found after the power loss]."""
    (base / "copy").mkdir()
    (base / "disk").mkdir()
    run("truncate", "-s", "16M", str(base / "disk.img"))
    run("mkfs.ext4", "-q", "-F", str(base / "disk.img"))
    # commit=300: the journal's own timer would write everything sooner or later, and hide a missing sync.
    run("mount", "-o", "loop,commit=300", str(base / "disk.img"), str(base / "disk"))
    receipts = base / "disk" / "receipts"
    receipts.mkdir(mode=0o700)
    run("sync", "-f", str(base / "disk"))
    seen: list[list[str]] = []
    with subprocess.Popen(
        child(receipts, kind, "steps"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            seen.append([line.decode().strip(), after(base, len(seen))])
            process.stdin.write(b"\n")
    run("umount", str(base / "disk"))
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
