"""`ddtreec completion`: the script that makes a shell complete commands, options, engines and fields."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from ddtreec.cli.common import guarded

VARIABLE = "_DDTREEC_COMPLETE"
"""How the shell asks: click looks for it under the name of the program."""

NOSPACE = {"bash": ("COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace")}
"""What to add to click's script so that no space follows `limits.context=`."""


@click.command("completion", short_help="Print what makes a shell complete ddtreec.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@guarded
def completion(shell: str) -> None:
    """Print the completion script of SHELL: commands, options, shipped engines, and fields of specs behind --set.

    \b
    Examples:
      ddtreec completion bash > ~/.local/share/bash-completion/completions/ddtreec
      ddtreec completion zsh > ~/.zfunc/_ddtreec      (with fpath+=~/.zfunc before compinit)
      ddtreec completion fish > ~/.config/fish/completions/ddtreec.fish
    """
    from ddtreec.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of the choices"
    script = kind(main, {}, "ddtreec", VARIABLE).source()
    old, new = NOSPACE.get(shell, ("", ""))
    sys.stdout.write(script.replace(old, new, 1) if old else script)
