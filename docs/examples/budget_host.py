#!/usr/bin/env python3
"""budget_host.py DIR COMMAND [ARG...]: one job of ``contain run`` under a permit of this machine's budget.

Asks ``contain permit``, and starts nothing before it is granted; binds the permit to the proof of the containment
before the gate opens; gives it back on the last reply. DIR holds the receipts. See docs/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import uuid
from pathlib import Path


class Contain:
    """A ``contain`` that speaks JSON lines."""

    def __init__(self, *words: str) -> None:
        """Starts it."""
        self.process = subprocess.Popen(
            ["contain", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def say(self, **fields: object) -> None:
        """One message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(fields) + "\n")

    def hear(self, *events: str) -> dict[str, object]:
        """The next reply of one of these kinds; all others are for people."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            reply: dict[str, object] = json.loads(line)
            if reply["event"] in events:
                return reply
            sys.stderr.write(line)
        sys.exit("contain ended early; contain inspect and contain status say what is true")


def main() -> int:
    """Runs the command; its exit code, or 125."""
    receipts, words = str(Path(sys.argv[1]).absolute()), sys.argv[2:]
    permit_id, job_id, token = str(uuid.uuid4()), str(uuid.uuid4()), secrets.token_hex(32)
    budget = Contain("permit")
    budget.say(id=permit_id, action="ask", command=words[0], args=words[1:], cwd=str(Path.cwd()))
    granted = budget.hear("granted", "refused")
    if granted["event"] == "refused":
        sys.exit(f"no permit: {granted['message']}")
    env = {**os.environ, **granted["env"]["set"]}  # type: ignore[index]
    env = {name: value for name, value in env.items() if name not in granted["env"]["unset"]}  # type: ignore[index]
    run = Contain("run", receipts)
    run.say(id=job_id, permitId=permit_id, token=token, command=words[0], args=words[1:], env=env)
    prepared = run.hear("prepared", "refused")
    if prepared["event"] == "refused":
        sys.exit(f"nothing ran: {prepared['message']}")  # our end withdraws the permit
    proof = prepared["namespaceInit"]
    budget.say(id=permit_id, action="bind", proof=proof, receipts=receipts, jobId=job_id)
    bound = budget.hear("bound", "refused")
    run.say(id=job_id, token=token, action="go" if bound["event"] == "bound" else "cancel")
    last = run.hear("released", "held")
    budget.say(id=permit_id, action="release")
    budget.hear("returned", "refused")
    outcome = last["outcome"]
    return int(outcome.get("code", 125)) if isinstance(outcome, dict) else 125


if __name__ == "__main__":
    sys.exit(main())
