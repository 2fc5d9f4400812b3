"""The golden table of layouts, against cffi, against a C compiler, and against the length of answers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import COALITION, KINFO_BYTES, STRUCT_OF, ffi
from tests.darwin.build import missing_compiler
from tests.darwin.golden import KINFO, PRIVATE, PUBLIC
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    from tests.darwin.abi import Darwin

PROBE = Path(__file__).parent / "layout_probe.c"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """What the C compiler says: of the SDK's structs on a Mac, of ours elsewhere."""
    reason = missing_compiler()
    if reason:
        pytest.skip(reason)
    program = tmp_path_factory.mktemp("layout") / "probe"
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, PROBE], check=True)
    said = subprocess.run([program], check=True, capture_output=True).stdout
    layout: dict[str, dict[str, int]] = json.loads(said)
    return layout


@pytest.mark.parametrize("struct", [*PUBLIC, *PRIVATE])
def test_our_declarations_have_the_golden_layout(struct: str) -> None:
    """Size and every offset that is used."""
    golden = dict({**PUBLIC, **PRIVATE}[struct])
    assert ffi.sizeof(f"struct {struct}") == golden.pop("size")
    assert {member: ffi.offsetof(f"struct {struct}", member) for member in golden} == golden


@pytest.mark.parametrize("struct", PUBLIC)
def test_the_compiler_agrees_about_public_structs(struct: str, compiled: dict[str, dict[str, int]]) -> None:
    """On a Mac this is the SDK's word."""
    assert {member: compiled[struct][member] for member in PUBLIC[struct]} == PUBLIC[struct]


def test_the_compiler_agrees_about_kinfo_proc(compiled: dict[str, dict[str, int]]) -> None:
    """It is read by offset, so the offsets are all there is."""
    assert compiled["kinfo_proc"] == KINFO


@pytest.mark.parametrize("struct", PRIVATE)
def test_the_compiler_agrees_about_private_structs(struct: str, compiled: dict[str, dict[str, int]]) -> None:
    """Of which only we have a definition."""
    if ON_A_MAC:
        pytest.skip("capability: a header for private structs; the lengths of answers are compared instead")
    assert compiled[struct] == PRIVATE[struct]


@pytest.mark.parametrize("flavour", STRUCT_OF)
def test_an_answer_is_as_long_as_its_struct(flavour: int, darwin: Darwin) -> None:
    """With twice the room, exactly the struct comes back: a longer one would be another layout."""
    struct = STRUCT_OF[flavour]
    room = ffi.new("char[]", 2 * ffi.sizeof(struct))
    got = darwin.lib.proc_pidinfo(os.getpid(), flavour, 0, room, 2 * ffi.sizeof(struct))
    if flavour == COALITION and got == 0:
        pytest.fail(f"errno {darwin.errno}")
    assert got == ffi.sizeof(struct)


def test_a_record_of_the_sysctl_is_as_long_as_kinfo_proc(darwin: Darwin) -> None:
    """648 bytes, and it is of the pid that was asked for."""
    record = darwin.kinfo(os.getpid())
    assert record is not None
    assert len(record) == KINFO_BYTES == KINFO["size"]
    assert int.from_bytes(record[40:44], "little") == os.getpid()
