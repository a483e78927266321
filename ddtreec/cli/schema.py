"""`ddtreec schema`: the JSON Schema of a kind of spec."""

from __future__ import annotations

from pathlib import Path

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import as_json, deliver


@click.command("schema", short_help="Print the JSON Schema of a kind of spec, for editors.")
@click.argument("kind", type=click.Choice(["model", "drafter", "quant", "tree", "topology", "engine"]))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The file to write.  [default: standard output]")
@guarded
def schema(kind: str, out: Path | None) -> None:
    """Print the JSON Schema (draft 2020-12) of KIND, with descriptions, units and examples.

    An editor that knows yaml-language-server reads it from the first line of a spec:
    `# yaml-language-server: $schema=engine.schema.json`.

    \b
    Example:
      ddtreec schema engine -o engine.schema.json
    """
    from ddtreec.ops.docs import op_schemas
    from ddtreec.spec.fields import json_schema
    from ddtreec.spec.find import KINDS

    for known in KINDS:
        if known == kind:
            deliver(as_json(json_schema(known, op_schemas())), out)
