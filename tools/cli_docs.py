"""Writes docs/cli.md: the `--help` of every verb, so that the page and the program never differ.

    python -m tools.cli_docs

A test compares the page with what this would write.
"""

from __future__ import annotations

from pathlib import Path

import click

from ddtreec.cli.main import COMMANDS, main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
WIDTH = 100


def text() -> str:
    """The page."""
    top = main.make_context("ddtreec", ["schema"], max_content_width=WIDTH, terminal_width=WIDTH)
    parts = ["# The command line", "", "Written by `python -m tools.cli_docs` from `--help`.", ""]
    parts += ["```text", main.get_help(top), "```", ""]
    for name in COMMANDS:
        command = main.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top, max_content_width=WIDTH, terminal_width=WIDTH)
        parts += [f"## ddtreec {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text())
    print(PAGE)
