"""What supervisor and anchor say to each other has one layout for both."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from contain.darwin import anchor_build, wire

if TYPE_CHECKING:
    from pathlib import Path

PROBE = """
#include <stdio.h>
#include <stddef.h>
#include "wire.h"
int main(void) {
    printf("%d %zu %zu %zu %zu %d %d %d %d %d %d %d %d\\n", WIRE_VERSION, sizeof(struct command_block),
        offsetof(struct command_block, limit), sizeof(struct report), offsetof(struct report, user_us),
        MOST_LIMITS, NICE_KEEP, REPORT_READY, REPORT_STOPPED, STEP_EXEC, ORDER_OPEN, ORDER_SIGNAL, ORDER_GROUP);
    return 0;
}
"""


def test_both_sides_have_one_layout(tmp_path: Path) -> None:
    """Python's numbers are the compiler's."""
    source = tmp_path / "probe.c"
    source.write_text(PROBE)
    subprocess.run(["cc", "-I", anchor_build.SOURCES, "-o", tmp_path / "probe", source], check=True)
    said = subprocess.run([tmp_path / "probe"], capture_output=True, check=True, text=True).stdout
    assert [int(word) for word in said.split()] == [
        wire.VERSION,
        wire.HEAD_BYTES,
        32,
        wire.REPORT_BYTES,
        24,
        wire.MOST_LIMITS,
        wire.NICE_KEEP,
        wire.READY,
        wire.STOPPED,
        wire.STEPS.index("exec"),
        wire.open_order(foreground=False)[0],
        wire.signal_order(1, everybody=False)[0],
        wire.signal_order(1, everybody=True)[0],
    ]
