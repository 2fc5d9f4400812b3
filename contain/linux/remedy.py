"""What to do about a refusal, ready to be typed: doctor prints it, and nothing is changed by us."""

from __future__ import annotations

from contain.linux import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.errors import ContainError

PROFILE = """\
sudo tee /etc/apparmor.d/contain-init <<'END' && sudo apparmor_parser -r /etc/apparmor.d/contain-init
abi <abi/4.0>,
include <tunables/global>
profile contain-init "{program}" flags=(unconfined) {{
  userns,
}}
END"""
"""As Ubuntu 24.04 has one for each of its own programs that needs user namespaces: this one path gets the right."""


def of(error: ContainError) -> str | None:
    """For that very refusal; None where its own advice is all there is to say."""
    if error.reason == "namespaces-denied" and error.detail == "apparmor":
        return PROFILE.format(program=native.PROGRAM)
    return None
