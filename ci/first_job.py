"""A host in small: runs one job over the protocol of `contain run`, then shows the job's receipt.

It is the shortest complete example of docs/PROTOCOL.md. Exits 0 when the job ended and its containment was
proven empty, 3 when contain refused the job, 1 otherwise.
"""

import json
import secrets
import subprocess
import sys
import uuid
from pathlib import Path
from typing import IO

CONTAIN = Path(sys.executable).with_name("contain")
SCRIPT = "echo hello from pid $$; id -un; sleep 300 & echo left one process behind"


def main() -> int:
    """Ask, let it start, and read until the last reply."""
    job, token = str(uuid.uuid4()), secrets.token_hex(32)
    request = {
        "id": job,
        "permitId": str(uuid.uuid4()),
        "token": token,
        "command": "sh",
        "args": ["-c", SCRIPT],
        "graceMs": 0,
    }
    pipe = subprocess.PIPE
    with subprocess.Popen([CONTAIN, "run"], stdin=pipe, stdout=pipe, text=True) as wrapper:
        assert wrapper.stdin is not None  # noqa: S101 (both are pipes; this is for the type checker)
        assert wrapper.stdout is not None  # noqa: S101
        say(wrapper.stdin, request)
        last = None
        for line in wrapper.stdout:
            print(line, end="", flush=True)
            last = json.loads(line)["event"]
            if last == "prepared":
                # The receipt is durable and nothing has run: a budget binds its permit to the proof here.
                say(wrapper.stdin, {"id": job, "token": token, "action": "go"})
    if last == "refused":
        return 3
    print(f"\n$ contain inspect {job}", flush=True)
    shown = subprocess.run([CONTAIN, "inspect", job], check=False)
    return 0 if last == "released" and shown.returncode == 0 else 1


def say(wrapper: IO[str], message: dict[str, object]) -> None:
    """Send one message: a line of JSON, at once."""
    wrapper.write(json.dumps(message) + "\n")
    wrapper.flush()


if __name__ == "__main__":
    sys.exit(main())
