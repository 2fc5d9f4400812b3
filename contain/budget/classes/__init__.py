"""From a command line to its class: which lane, how many units, how much memory.

    launchers   peels `env`, `timeout`, `npx`, `uv run` and their like off a command
    tools       the table: a tool's verbs, watch modes, job counts and focused calls
    scripts     package scripts, shells and files that begin with `#!`
    kinds       what a class costs
    recognise   `classify`: the walk through the four

Nothing here fails: what is not understood is `other` (one unit), what runs other things unseen is `script`.
"""

from __future__ import annotations

from contain.budget.classes.kinds import KINDS, JobClass
from contain.budget.classes.recognise import classify
from contain.budget.classes.scripts import BLIND, Eyes, Sight
from contain.budget.classes.tools import TOOLS
from contain.budget.classes.words import base_name

__all__ = ["BLIND", "KINDS", "Eyes", "JobClass", "Sight", "classify", "jobs_options"]


def jobs_options(command: str, asked: JobClass) -> tuple[str, ...]:
    """The options by which ``command`` itself says how many workers it starts; () for a launcher of the tool."""
    tool = TOOLS.get(asked.tool)
    return tool.jobs if tool is not None and base_name(command) == asked.tool else ()
