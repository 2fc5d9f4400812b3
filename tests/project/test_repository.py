"""The repository as a stranger gets it: commands exist, links lead somewhere, no one machine is named."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import PurePosixPath

import pytest

from tests.project.tree import ROOT, text, tracked

PAGES = [name for name in tracked() if name.endswith(".md")]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:^|[`\s])\./((?:ci/|\.ci/)[\w-]+)", re.MULTILINE)

# One letter of each is in brackets, so that this file does not name what it looks for.
MACHINE_PATHS = re.compile(r"/wor[k]/|/far[m]/|/roo[t]/\.pyenv|/opt/pyp[i]")
REGISTRY_HOSTS = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|debia[n]\.org|ubunt[u]\.com")


def shipped_text() -> list[str]:
    """Tracked files that hold text, but for the licence, whose words are not ours."""
    return [name for name in tracked() if name != "LICENSE" and b"\0" not in (ROOT / name).read_bytes()]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """A link that is no address names a file of the repository, from the page's own directory."""
    for target in LINK.findall(text(page)):
        if "://" not in target:
            where = os.path.normpath(PurePosixPath(page).parent / target)
            assert (ROOT / where).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_told_exist(page: str) -> None:
    """What a page tells to run can be run: it is tracked, and has its run bit."""
    for command in COMMAND.findall(text(page)):
        assert command in tracked(), f"{page} tells of ./{command}"
        assert (ROOT / command).stat().st_mode & stat.S_IXUSR, command


def test_the_readme_tells_the_two_commands() -> None:
    """Everything that a fresh machine needs is in these two, and nothing is before them but the clone."""
    readme = text("README.md")
    assert readme.index("git clone") < readme.index("./ci/demo") < readme.index("./ci/test")


def test_every_path_in_the_vagrantfile_exists() -> None:
    """`vagrant validate` finds a missing script as well, but not everybody has vagrant."""
    paths = re.findall(r'path:\s*"([^"]+)"', text("Vagrantfile"))
    assert paths
    assert [path for path in paths if path not in tracked()] == []


def test_no_file_names_one_machine_or_a_registry() -> None:
    """Paths of the machine it was written on, and hosts of package registries, mean nothing elsewhere."""
    for name in shipped_text():
        for pattern in (MACHINE_PATHS, REGISTRY_HOSTS):
            assert pattern.findall(text(name)) == [], name


def test_the_version_is_said_once() -> None:
    """In pyproject.toml; the changelog has an entry for it."""
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    tellers = [name for name in tracked() if name.endswith((".py", ".toml")) and f'"{version}"' in text(name)]
    assert tellers == ["pyproject.toml"]
    assert f"\n## {version}" in text("CHANGELOG.md")


def test_every_ignored_rule_has_its_reason() -> None:
    """A rule of ruff that is switched off says why, on its line."""
    config = text("pyproject.toml")
    lists = config[config.index("[tool.ruff.lint]") : config.index("[tool.ruff.lint.pydocstyle]")]
    rules = [line for line in lists.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]
    assert rules
    assert [line for line in rules if "#" not in line] == []
