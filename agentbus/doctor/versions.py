"""Which version of a client is installed: by the package it came in, else by asking it. Leaves nothing in the home.

Asking takes some clients ten seconds, and leaves folders behind; so a client is asked in a home of its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Final

from agentbus.doctor.command import version_of
from agentbus.repository import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE_BYTES_MAX: Final = 4 << 20
_LEVELS_MAX: Final = 4
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TERM")


def installed_version(path: str, program: str, environ: Mapping[str, str]) -> str:
    """The version of the client at ``path``; "" if it cannot be told."""
    directory = os.path.dirname(os.path.realpath(path))
    for _ in range(_LEVELS_MAX):
        found = _in_package(f"{directory}/package.json", program)
        if found:
            return found
        directory = os.path.dirname(directory)
    with tempfile.TemporaryDirectory(prefix="agentbus-doctor-", ignore_cleanup_errors=True) as home:
        kept = {key: environ[key] for key in _KEPT if key in environ}
        return version_of(path, kept | {"HOME": home, "TMPDIR": home})


def _in_package(file: str, program: str) -> str:
    """What an npm package says, if it is the one that the program came in."""
    try:
        package = json.loads(read_regular(file, _PACKAGE_BYTES_MAX))
    except (OSError, ValueError):
        return ""
    programs = package.get("bin") if isinstance(package, dict) else None
    told = package.get("version") if isinstance(programs, dict) and program in programs else None
    return told if isinstance(told, str) else ""
