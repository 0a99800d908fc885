"""``agentbus``: starts ``mcp`` and ``identity`` without click, which costs them too much time; the rest is click's."""

from __future__ import annotations

import os
import sys


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
    elif arguments[:1] == ["mcp"] and len(config := _parse_config(arguments[1:])) == 1:
        parent = os.getppid()
        from agentbus import service, stdio  # noqa: PLC0415  # as above

        stdio.serve(service.from_settings(config[0]), parent)
    from agentbus import cli  # noqa: PLC0415  # as above

    cli.main()


def _parse_config(arguments: list[str]) -> list[str | None]:
    """The file named by ``--config``, None if none is; an empty list if click must say what is wrong."""
    match arguments:
        case []:
            return [None]
        case ["--config", path]:
            return [path]
        case [option] if option.startswith("--config="):
            return [option.removeprefix("--config=")]
    return []


if __name__ == "__main__":
    main()
