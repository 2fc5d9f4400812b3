"""``contain doctor``: a table for a person, one JSON object with ``--json`` or where nobody sits in front."""

from __future__ import annotations

import sys

from contain.cli.desk import options
from contain.doctor.check import FAILED, OK
from contain.doctor.report import examine
from contain.errors import UsageError
from contain.platform import backend as find_backend
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.doctor.report import Report

NAME_COLUMNS = 18


def main(args: list[str]) -> int:
    """0 where a job works and may ask for a permit; else what the verb would end with that is refused."""
    chosen, words = options(args, (), ("--json",))
    if len(words) > 1:
        raise UsageError(
            "contain doctor takes a directory of receipts at most.", advice="contain --help shows it."
        )
    report = examine(find_backend(), words[0] if words else None)
    if "--json" in chosen or not sys.stdout.isatty():
        sys.stdout.write(jsontext.dumps(report.document()) + "\n")
    else:
        sys.stdout.write(table(report))
    return report.exit_code


def table(report: Report) -> str:
    """For eyes: the surroundings, a line a check, what to do below it, and the verdict last."""
    document = report.document()
    lines = [f"contain {document['contain']}, Python {document['python']}"]
    lines += [
        f"  {name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in report.surroundings.items()
        if value is not None
    ]
    lines.append("")
    for check in report.checks:
        lines.append(f"{check.state:<8} {check.name:<{NAME_COLUMNS}} {check.what}")
        if check.fix is not None and check.state != OK:
            lines += [
                f"{'':<9}{'do: ' if n == 0 else '    '}{text}"
                for n, text in enumerate(check.fix.splitlines())
            ]
    lines += ["", f"tiers: {', '.join(f'{name} {state}' for name, state in report.tiers.items())}"]
    found = report.prediction
    lines.append(
        f"A job runs here, at the tier {found.tier}."
        if found.works
        else f"A job is refused here ({found.reason}, exit status {found.exit_code}): see {FAILED} above."
    )
    return "\n".join(lines) + "\n"
