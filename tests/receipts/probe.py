"""What `open_place` says, as a child process: `python probe.py PATH|- [PROC]` prints one JSON object."""

from __future__ import annotations

import json
import sys

from receipts import Unsafe, open_place


def main(path: str, proc: str = "/proc") -> None:
    """Print the place that was found, or the refusal."""
    try:
        with open_place(None if path == "-" else path, proc=proc) as place:
            found = {"path": place.path, "filesystem": place.filesystem, "note": place.note}
    except Unsafe as refusal:
        found = {"reason": refusal.reason, "message": refusal.message, "advice": refusal.advice}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
