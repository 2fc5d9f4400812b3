#!/usr/bin/env python3
"""host.py DIR COMMAND [ARG...]: a whole host of the protocol in front of one command. See docs/PROTOCOL.md.

DIR/receipts is contain's; DIR/permits is ours: one file a job, there as long as the job may have a living process.
TERM and INT cancel the job. Exits with the command's status, 128 and the signal for one that was killed, and 125 where
it has none. Standard library only; made to be copied.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import uuid
from pathlib import Path

NO_STATUS = 125
NO_RECEIPT = 68
"""From inspect: whatever can have run has a receipt."""


def durable(path: Path, document: object) -> None:
    """Writes a file so that it is there, whole, after a power loss: what step 4 of the flow asks for."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="ascii") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


class Job:
    """One job, from the host's side."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        """Says durably which id it will use, then starts the wrapper and asks."""
        self.id, self.token = str(uuid.uuid4()), secrets.token_hex(32)
        self.receipts = directory / "receipts"
        self.permit = directory / "permits" / f"{self.id}.json"
        self.permit.parent.mkdir(parents=True, exist_ok=True)
        durable(self.permit, {"id": self.id})
        self.never_ran = True
        self.wrapper = subprocess.Popen(
            ["contain", "run", str(self.receipts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._send(permitId=str(uuid.uuid4()), token=self.token, command=command[0], args=command[1:])

    def _send(self, **fields: object) -> None:
        """One message. Not through a buffer: a signal handler that cancels may come in between."""
        assert self.wrapper.stdin is not None
        data = json.dumps({"id": self.id, **fields}).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.wrapper.stdin.fileno(), data) :]
        except BrokenPipeError:
            pass  # the wrapper has ended: its last reply, or inspect, says how

    def go(self, proof: object) -> None:
        """Binds the permit to the proof, durably, and only then opens the gate."""
        self.never_ran = False
        durable(self.permit, {"id": self.id, "proof": proof})
        self._send(token=self.token, action="go")

    def cancel(self) -> None:
        """TERM now, KILL after the request's grace."""
        self._send(token=self.token, action="cancel")

    def last_reply(self) -> dict[str, object]:
        """Reads to the end. The wrapper may have died: then inspect has the last word."""
        assert self.wrapper.stdout is not None
        reply: dict[str, object] = {}
        for line in self.wrapper.stdout:  # never stop reading, and never close its input before this ends
            reply = json.loads(line)
            if reply["event"] == "prepared":
                self.go(reply["namespaceInit"])
        self.wrapper.wait()
        if reply.get("event") in ("released", "held"):
            return reply
        inspected = subprocess.run(
            ["contain", "inspect", str(self.receipts), self.id], stdout=subprocess.PIPE, check=False
        )
        if inspected.returncode == NO_RECEIPT:
            self.never_ran = True
            return {"event": "refused"}
        return json.loads(inspected.stdout) if inspected.stdout else reply


def main() -> int:
    """Runs the command; see above."""
    job = Job(Path(sys.argv[1]), sys.argv[2:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: job.cancel())
    last = job.last_reply()
    refused = last.get("event") == "refused" and job.never_ran
    if refused or (last.get("state") == "released" and last.get("empty") is True):
        job.permit.unlink()  # the permit returns: on this evidence, and on no other
    outcome = last.get("outcome")
    if not isinstance(outcome, dict):
        return NO_STATUS
    return int(outcome["code"]) if "code" in outcome else 128 + int(outcome.get("signal", NO_STATUS - 128))


if __name__ == "__main__":
    sys.exit(main())
