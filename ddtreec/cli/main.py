"""The `ddtreec` command: names its subcommands and imports only the one that was asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from ddtreec import __version__
from ddtreec.cli.common import INTERRUPTED, fail, remember_debug

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("ddtreec.cli.init:init", "Write specs for a Hugging Face checkpoint."),
    "check": ("ddtreec.cli.check:check", "Say whether an engine spec fits together, in under a second."),
    "plan": ("ddtreec.cli.plan:plan", "Show what would run where, how big and how fast; writes nothing."),
    "compile": ("ddtreec.cli.compile:compile_", "Compile an engine spec to a bundle."),
    "run": ("ddtreec.cli.run:run", "Generate text with a bundle."),
    "verify": ("ddtreec.cli.verify:verify", "Hold every kernel of a bundle against float64, on this machine's GPU."),
    "bench": ("ddtreec.cli.bench:bench", "Measure acceptance, speed and expert overlap on held-out prompts."),
    "graph": ("ddtreec.cli.graph:graph", "Draw the layer graph: text, Mermaid, DOT, or a page to click through."),
    "explain": ("ddtreec.cli.explain:explain", "Explain a node, a field of a spec, an op, or an error code."),
    "show": ("ddtreec.cli.show:show", "Print the resolved specs of an engine, with the line that set each value."),
    "schema": ("ddtreec.cli.schema:schema", "Print the JSON Schema of a kind of spec."),
    "inspect": ("ddtreec.cli.inspect:inspect", "Show what a bundle holds, and whether its files are as compiled."),
    "diff": ("ddtreec.cli.diff:diff", "Compare two engines or bundles: values, memory, predicted speed."),
    "doctor": ("ddtreec.cli.doctor:doctor", "Say what this machine is, and whether a bundle can run on it."),
    "completion": ("ddtreec.cli.completion:completion", "Print what makes a shell complete ddtreec."),
    "trace": ("ddtreec.cli.trace:trace", "Generate once and keep every round, as JSON and as a page."),
}
"""Name to module:attribute and the line of help, so that `--help` imports none of them."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for an unknown name."""
        if cmd_name not in self.table:
            return None
        module, attribute = self.table[cmd_name][0].split(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands from the table alone, then the group's own options."""
        names = [CompletionItem(n, help=line) for n, (_, line) in self.table.items() if n.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it, but Ctrl-C while a command is being imported leaves as everywhere."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with a suggestion for a misspelt name."""
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.table, n=1)
            hint = f" Did you mean {near[0]}?" if near else f" Commands: {', '.join(self.table)}."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddtreec")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Print tracebacks, too.")
def main() -> None:
    """Compile YAML specs into one specialised engine, and run it.

    Exit codes: 2 usage or spec, 3 fit or topology, 4 checkpoint, 5 device, toolchain or bundle, 70 a bug of ddtreec,
    130 interrupted.

    \b
    Example:
      ddtreec plan kimi-k2.6-rtx-pro-6000-x8-pcie
    """


if __name__ == "__main__":
    main()
