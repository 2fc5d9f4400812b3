"""A policy file: TOML that names a preset and changes some of its numbers. Strict: what is not known is refused.

A number that was silently ignored could have been the limit that somebody relies on; every mistake is told at once.
"""

from __future__ import annotations

from contain.budget.policy.presets import PRESETS, preset
from contain.budget.policy.record import LANES, ClassCost, Marks, Policy
from contain.budget.policy.rules import problems
from contain.errors import BadPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from receipts.record import Record

MACHINE = frozenset({"name", "cores", "memory_mib"})
"""Given by the preset and the machine; no file changes them."""

TABLES = frozenset({"marks", "pools", "limit_shares", "classes"})

TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "int | None": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "float | None": ("a number", (int, float)),
    "str": ("a string", (str,)),
    "bool": ("true or false", (bool,)),
}
NOTHING = "none"
"""How a file says None, which TOML cannot."""


def check(text: str, cores: int, memory_mib: int) -> Policy:
    """The policy that ``text`` makes of this machine (MiB). Raises BadPolicy, which tells every mistake."""
    from tomllib import TOMLDecodeError, loads

    try:
        table = loads(text)
    except TOMLDecodeError as error:
        raise BadPolicy(f"The policy is no TOML: {error}.", advice="Correct that line.") from None
    wrong: list[str] = []
    name = table.pop("preset", "shared")
    if name not in PRESETS:
        raise BadPolicy(f"preset: {name!r} is none of {_listed(PRESETS)}.", advice="Choose one of these.")
    policy = _applied(preset(name, cores, memory_mib), table, wrong)
    if not wrong:
        wrong = problems(policy)
    if wrong:
        raise BadPolicy(
            "The policy is wrong: " + "; ".join(wrong) + ".",
            advice="`contain policy show` prints every name.",
        )
    return policy


def show(policy: Policy) -> str:
    """The whole policy as a file that makes it again, on a machine of this size."""
    lines = [f"# {policy.cores} cores, {policy.memory_mib} MiB", f'preset = "{policy.name}"']
    lines += _lines(policy, skipped=MACHINE | TABLES)
    lines += ["", "[marks]", *_lines(policy.marks)]
    for table, pairs in (("pools", policy.pools), ("limit_shares", policy.limit_shares)):
        if pairs:
            lines += ["", f"[{table}]", *(f"{_quoted(key)} = {_value(value)}" for key, value in pairs)]
    for one in policy.classes:
        lines += ["", f"[classes.{_bare(one.name)}]", *_lines(one, skipped=frozenset({"name"}))]
    return "\n".join(lines) + "\n"


def set_value(text: str, key: str, value: str, cores: int, memory_mib: int) -> str:
    """``text`` with one number changed, comments kept: ``base``, ``marks.psi_io``, ``classes.test.want_units``.

    ``value`` is as in TOML; a bare word is taken for a string. Raises BadPolicy when the file would be wrong.
    """
    check(text, cores, memory_mib)
    section, name = _split(key)
    said = value if _is_toml(value) else _quoted(value)
    lines = text.splitlines()
    begin, end = _section(lines, section)
    line = f"{_bare(name)} = {said}"
    at = next((n for n in range(begin, end) if _key_of(lines[n]) == name), None)
    if at is not None:
        lines[at] = line
    elif begin > len(lines):
        lines += ["", f"[{section}]", line]
    else:
        while end > begin and not lines[end - 1].strip():
            end -= 1
        lines.insert(end, line)
    changed = "\n".join(lines) + "\n"
    check(changed, cores, memory_mib)
    return changed


def _applied(policy: Policy, table: dict[str, Any], wrong: list[str]) -> Policy:
    changes = _fields(
        Policy, {k: v for k, v in table.items() if k not in TABLES}, "", MACHINE | TABLES, wrong
    )
    for name in TABLES & table.keys():
        if not isinstance(table[name], dict):
            wrong.append(f"{name} must be a table")
            continue
        if name == "marks":
            changes[name] = policy.marks.replace(**_fields(Marks, table[name], "marks.", frozenset(), wrong))
        elif name == "classes":
            changes[name] = _classes(policy, table[name], wrong)
        else:
            changes[name] = _pairs(policy.__dict__[name], table[name], name, wrong)
    return policy.replace(**changes)


def _classes(policy: Policy, table: dict[str, Any], wrong: list[str]) -> tuple[ClassCost, ...]:
    classes = {one.name: one for one in policy.classes}
    for name, table_of_one in table.items():
        if not isinstance(table_of_one, dict):
            wrong.append(f"classes.{name} must be a table")
            continue
        where, given = f"classes.{name}.", dict(table_of_one)
        draws = given.pop("draws", None)
        changes = _fields(ClassCost, given, where, frozenset({"name", "draws"}), wrong)
        before = classes.get(name, ClassCost(name=name))
        if draws is not None:
            changes["draws"] = _pairs((), draws, f"{where}draws", wrong)
        if changes.get("lane", LANES[0]) not in LANES:
            wrong.append(f"{where}lane: {changes['lane']!r} is none of {_listed(LANES)}")
        classes[name] = before.replace(**changes)
    return tuple(classes.values())


def _fields(
    record: type[Record], table: dict[str, Any], where: str, kept: frozenset[str], wrong: list[str]
) -> dict[str, Any]:
    """The fields of ``record`` that ``table`` gives, of the right types; the rest is in ``wrong``."""
    types = {name: kind for name, kind in record._types.items() if name not in kept}  # noqa: SLF001 - its schema
    found: dict[str, Any] = {}
    for name, value in table.items():
        kind = types.get(name)
        if kind is None:
            wrong.append(f"{where}{name} is not known{_nearest(name, types)}")
        elif value == NOTHING and kind.endswith("| None"):
            found[name] = None
        elif kind.startswith("tuple[str"):
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                wrong.append(f"{where}{name} must be an array of strings")
            else:
                found[name] = tuple(value)
        elif not _is(value, TYPES[kind][1]):
            wrong.append(f"{where}{name} must be {TYPES[kind][0]}, and is {value!r}")
        else:
            found[name] = value
    return found


def _pairs(before: Any, table: Any, where: str, wrong: list[str]) -> tuple[Any, ...]:
    pairs = dict(before)
    kinds: tuple[type, ...] = (int, float) if where == "limit_shares" else (int,)
    if not isinstance(table, dict):
        wrong.append(f"{where} must be a table")
        return tuple(pairs.items())
    for name, value in table.items():
        if _is(value, kinds) and value >= 0:
            pairs[name] = value
        else:
            wrong.append(f"{where}.{name} must be a number of at least 0, and is {value!r}")
    return tuple(pairs.items())


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    """True is an int to Python, and nan a float; neither is a number to anybody else."""
    return isinstance(value, kinds) and isinstance(value, bool) == (kinds == (bool,)) and value == value  # noqa: PLR0124


def _nearest(name: str, known: dict[str, str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f" (is {near[0]} meant?)" if near else ""


def _lines(record: Record, skipped: frozenset[str] = frozenset()) -> list[str]:
    fields = {name: value for name, value in record.__dict__.items() if name not in skipped}
    draws = fields.pop("draws", None)
    lines = [f"{name} = {_value(value)}" for name, value in fields.items()]
    if draws:
        lines.append("draws = { " + ", ".join(f"{_quoted(pool)} = {n}" for pool, n in draws) + " }")
    return lines


def _value(value: Any) -> str:
    if value is None:
        return _quoted(NOTHING)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_quoted(one) for one in value) + "]"
    return str(value)


def _quoted(text: str) -> str:
    from json import dumps

    return dumps(text)  # a JSON string is a TOML string


def _bare(name: str) -> str:
    return (
        name
        if name and name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        else _quoted(name)
    )


def _is_toml(value: str) -> bool:
    from tomllib import TOMLDecodeError, loads

    try:
        loads(f"x = {value}")
    except TOMLDecodeError:
        return False
    return True


def _split(key: str) -> tuple[str, str]:
    """(section, name) of a dotted key: pools have dots and colons of their own, and one level."""
    head, dot, rest = key.partition(".")
    if not dot:
        return "", key
    if head == "classes":
        name, _, field = rest.rpartition(".")
        return f"classes.{_bare(name)}", field
    return head, rest


def _section(lines: list[str], section: str) -> tuple[int, int]:
    """First and last-but-one line of a section's body; a section that is missing begins behind the end."""
    heads = [n for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    begin = 0
    if section:
        found = next((n for n in heads if lines[n].split("#")[0].strip() == f"[{section}]"), None)
        if found is None:
            return len(lines) + 1, len(lines) + 1
        begin = found + 1
    return begin, next((n for n in heads if n >= begin), len(lines))


def _key_of(line: str) -> str:
    key = line.partition("=")[0].strip()
    return key[1:-1] if key[:1] in {'"', "'"} else key


def _listed(names: Any) -> str:
    return ", ".join(names)
