"""contained.py CMD ARGS...: a small host of the protocol that stands in front of one command, as env or nice do.

The command's output is ours (``contain run`` sends it to standard error, which is joined to standard output here).
TERM and INT become a cancel; the exit status is the command's, 128+n for a signal; 99 when nothing is proven.
RECEIPTS names the directory of receipts; GRACE_MS the grace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

TOKEN = "c0" * 32
UNPROVEN = 99


def main() -> int:
    """Runs the command; see above."""
    job_id = str(uuid.uuid4())
    program = [
        sys.executable,
        "-m",
        "contain",
        "run",
        *([os.environ["RECEIPTS"]] if "RECEIPTS" in os.environ else []),
    ]
    grace_ms = int(os.environ.get("GRACE_MS", "3000"))

    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=1) as wrapper:
        assert wrapper.stdin is not None
        assert wrapper.stdout is not None
        send = wrapper.stdin.fileno()

        def say(**message: object) -> None:
            os.write(send, json.dumps({"id": job_id, "token": TOKEN, **message}).encode() + b"\n")

        def cancel(_number: int, _frame: object) -> None:
            say(action="cancel")

        say(permitId=job_id, command=sys.argv[1], args=sys.argv[2:], graceMs=grace_ms, killMs=1000)
        last: dict[str, Any] = {"event": "none"}
        for text in wrapper.stdout:
            last = json.loads(text)
            if last["event"] == "prepared":
                signal.signal(signal.SIGTERM, cancel)
                signal.signal(signal.SIGINT, cancel)
                say(action="go")
    if last["event"] != "released" or last["empty"] is not True:
        sys.stderr.write(f"contained: {last}\n")
        return UNPROVEN
    if "REPORT" in os.environ:
        Path(os.environ["REPORT"]).write_text(json.dumps(last))
    outcome = last["outcome"]
    return int(outcome["code"]) if "code" in outcome else 128 + int(outcome.get("signal", 9))


if __name__ == "__main__":
    sys.exit(main())
