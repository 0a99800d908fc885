"""``agentbus``: starts ``mcp`` and ``identity`` without click, which costs them too much time; the rest is click's."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """Run the command line in ``sys.argv``; ends the process, or returns where all is well."""
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("agentbus: interrupted")


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["identity"]:
        from agentbus import identity  # noqa: PLC0415  # each command imports what it needs, and no more

        if identity.run(arguments[1:]) is not None:
            return
    elif arguments[:1] == ["hook"]:
        from agentbus import hook  # noqa: PLC0415  # as above

        status = hook.run(arguments[1:])
        if status is not None:
            sys.exit(status)
    elif arguments[:1] == ["mcp"] and (options := _parse_options(arguments[1:])) is not None:
        _serve(options)
    from agentbus import cli  # noqa: PLC0415  # as above

    cli.main()


def _serve(options: dict[str, str]) -> NoReturn:
    parent = os.getppid()
    from agentbus import service, stdio, whereabouts  # noqa: PLC0415  # as above

    try:
        whereabouts.settle(options.get("--directory"), os.environ)
    except OSError as error:
        sys.exit(f"agentbus: --directory {error.filename}: {error.strerror}")
    stdio.serve(service.from_settings(options.get("--config")), parent)


def _parse_options(arguments: list[str]) -> dict[str, str] | None:
    """Options of ``mcp`` and their values; None if there are others, and click must say what they are."""
    found: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, joined, value = word.partition("=")
        if name not in ("--config", "--directory") or name in found:
            return None
        given = value if joined else next(words, None)
        if given is None:
            return None
        found[name] = given
    return found


if __name__ == "__main__":
    main()
