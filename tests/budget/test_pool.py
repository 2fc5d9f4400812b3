"""``contain pool`` and ``contain exec --draw``: named things of which there are few, and what if one is ill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contain.budget.arbiter import Health, Now, degraded, has_pool, never, pool_states
from contain.budget.asking import drawing
from contain.budget.policy import preset
from contain.cli import exec_options
from contain.errors import NeverPossible, UsageError
from contain.job import new_id
from tests.blocked import needs_root
from tests.budget.scene import Scene
from tests.budget.scripted import calm, in_an_account

if TYPE_CHECKING:
    from pathlib import Path

RULES = preset("shared", 8, 32_768).replace(pools=(("lane:light", 2), ("gpu", 2), ("port:*", 1)))


def test_a_pool_has_a_name_of_the_policy() -> None:
    """A family gives each of its members, and is none itself."""
    assert [has_pool(RULES, name) for name in ("gpu", "lane:light", "port:6298")] == [True] * 3
    assert [has_pool(RULES, name) for name in ("tpu", "port:*", "port", "lane:none", "")] == [False] * 5


def test_every_pool_with_who_has_it() -> None:
    """Of a family the members that are out, of an ill one its health."""
    scene = Scene(RULES, health={"port:1": Health(reason="taken by another program")})
    scene.holds("a", 1, draws=(("gpu", 2),), holder="train")
    scene.holds("b", 1, draws=(("port:6298", 1),))
    found = {one.name: one for one in pool_states(scene.snapshot, RULES, scene.now)}
    assert {name: (one.used, one.size) for name, one in found.items()} == {
        "lane:light": (0, 2),
        "gpu": (2, 2),
        "port:*": (0, 1),
        "port:6298": (1, 1),
        "port:1": (0, 1),
    }
    assert [(one.holder, one.amount) for one in found["gpu"].holders] == [("train", 2)]
    assert found["port:1"].health is not None
    assert found["gpu"].health is None


def test_who_holds_of_an_ill_pool_is_degraded() -> None:
    """While it is ill, and nobody else."""
    scene = Scene(RULES, health={"gpu": Health(reason="hot", until_s=100.0)})
    held = scene.holds("a", 1, draws=(("gpu", 1),))
    other = scene.holds("b", 1)
    early, late = Now(awake_s=0.0, wall_s=99.0), Now(awake_s=0.0, wall_s=101.0)
    assert degraded(held, scene.snapshot, early) == ("gpu",)
    assert degraded(held, scene.snapshot, late) == degraded(other, scene.snapshot, early) == ()


def test_a_gpu_head_keeps_nobody_from_the_cpu() -> None:
    """It waits for a token that is out; the cpu job behind it is granted, the next for the gpu is not."""
    scene = Scene(RULES)
    scene.holds("a", 1, draws=(("gpu", 2),))
    scene.waits("head", 1, draws=(("gpu", 1),))
    scene.waits("cpu", 1)
    scene.waits("tail", 1, draws=(("gpu", 1),))
    assert list(scene.granted()) == ["cpu-3"]


def test_draws_of_one_pool_are_one_draw() -> None:
    """Two of one each are two: the sum must fit, not each by itself."""
    scene = Scene(RULES)
    plain = scene.waits("a", 1, draws=(("gpu", 1),))
    asked = drawing(plain, (("gpu", 1), ("port:6298", 1)), RULES)
    assert asked.draws == (("gpu", 2), ("port:6298", 1))
    assert never(RULES, asked) == ()
    with pytest.raises(NeverPossible, match="draws 3 of gpu"):
        drawing(plain, (("gpu", 1), ("gpu", 1)), RULES)


def test_a_draw_that_no_policy_has_is_refused_with_the_way_to_add_it() -> None:
    """At once, and never queued."""
    with pytest.raises(NeverPossible, match=r"contain policy set pools\.tpu 1"):
        drawing(Scene(RULES).waits("a", 1), (("tpu", 1),), RULES)


@pytest.mark.parametrize("word", ["gpu", "gpu=", "gpu=0", "gpu=x", "=1", "gpu=-1"])
def test_a_draw_is_a_pool_and_a_number(word: str) -> None:
    """Anything else is a usage error."""
    with pytest.raises(UsageError, match="--draw takes"):
        exec_options.parse(["--budget", "--draw", word, "true"], new_id, dict)


def pools(text: str) -> dict[str, dict[str, Any]]:
    """The last list of pools that was printed, by name."""
    document = json.loads([one for one in text.splitlines() if one.startswith('{"version":1,"pools"')][-1])
    return {one["name"]: one for one in document["pools"]}


@needs_root
@pytest.mark.slow
def test_a_quarantined_pool_grants_nothing_and_marks_its_holders(tmp_path: Path) -> None:
    """Who has it is degraded, who wants it waits with the reason, and goes on when it is cleared."""
    ran = tmp_path / "ran"
    done = in_an_account(
        tmp_path,
        calm(3)
        + f"""
$C exec --budget --draw gpu=1 --session a -- sleep 1000 & A=$!
until $C status | grep -q '"state":"bound"\\|"state":"running"'; do sleep 0.05; done
$C pool quarantine gpu --reason 'ecc errors'; $C pool; $C status
kill $A; wait $A
$C exec --budget --draw gpu=1 --session b -- touch {ran} 2> why & B=$!
until $C status | grep -q '"waiting":\\[{{'; do sleep 0.05; done
test -e {ran} && echo early; $C exec --budget -- echo others go on
$C pool clear gpu; wait $B; echo b=$?; cat why >&2; rm why; $C pool""".replace("why", str(tmp_path / "why")),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "others go on" in lines
    assert "b=0" in lines
    assert "early" not in lines
    assert ran.exists()
    first = pools("\n".join(lines[:1]))["gpu"]
    assert (first["used"], first["size"], first["health"]) == (1, 1, "quarantined")
    assert first["holders"][0]["session"] == "a"
    assert first["reason"].startswith("ecc errors (uid ")
    assert json.loads(lines[1])["permits"][0]["degraded"] == ["gpu"]
    assert "quarantined: ecc errors" in done.stderr
    assert (pools(done.stdout)["gpu"]["health"], pools(done.stdout)["gpu"]["used"]) == ("well", 0)


@needs_root
@pytest.mark.slow
def test_what_contain_pool_refuses(tmp_path: Path) -> None:
    """A name that there is not, with the list; an illness without a reason, or without its end."""
    done = in_an_account(
        tmp_path,
        calm(1)
        + """
for words in 'quarantine tpu --reason x' 'cool gpu --reason x' 'cool gpu --for 0 --reason x' 'quarantine gpu' \\
    'clear gpu' 'quarantine port:* --reason x' 'mend gpu'; do $C pool $words; echo $?; done
$C pool cool port:6298 --for 20m --reason busy && $C pool
$C exec --budget --draw tpu=1 -- true; echo $?""",
    )
    lines = done.stdout.splitlines()
    assert lines[:7] == ["64"] * 7, done.stderr
    assert "it has gpu, lane:light" in done.stderr or "lane:light, lane:long" in done.stderr
    assert pools(done.stdout)["port:6298"]["health"] == "cooling"
    assert lines[-1] == "125"
    assert "contain policy set pools.tpu 1" in done.stderr
