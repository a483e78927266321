"""`ddtreec show`: the specs of an engine as they are after extends, defaults and --set."""

from __future__ import annotations

import sys

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import as_json as json_text

SCHEMA = "ddtreec.show/1"


@click.command("show", short_help="Print the resolved specs of an engine, with the line that set each value.")
@click.argument("engine")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one value of the specs; repeatable.")
@click.option("--resolved", is_flag=True, help="Print every value, defaults included, as YAML.")
@click.option("--origins", is_flag=True, help="Say behind each value where it was set; implies --resolved.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(["model", "drafter", "quant", "tree", "topology", "engine"]),
    help="Only this spec; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: values, and their origins.")
@guarded
def show(
    engine: str, overrides: tuple[str, ...], resolved: bool, origins: bool, kinds: tuple[str, ...], as_json: bool
) -> None:
    """Show the specs that ENGINE is made of. Without --resolved: which files they are.

    \b
    Examples:
      ddtreec show tiny-k2-cpu
      ddtreec show tiny-k2-cpu --resolved --origins --kind tree --set tree.budget=8
    """
    from ddtreec.spec import resolved as specs
    from ddtreec.spec.load import load_engine

    loaded = load_engine(engine, overrides)
    if as_json:
        wanted = [leaf for leaf in specs.leaves(loaded) if not kinds or leaf.path[0] in kinds]
        values = {kind: data for kind, data in loaded.resolved().items() if not kinds or kind in kinds}
        origin_of = {leaf.dotted: leaf.origin for leaf in wanted}
        sys.stdout.write(json_text({"schema": SCHEMA, "engine": engine, "specs": values, "origins": origin_of}))
    elif resolved or origins:
        sys.stdout.write(specs.text(loaded, origins, kinds))
    else:
        for kind, spec in sorted(loaded.specs().items(), key=lambda item: item[0] != "engine"):
            if not kinds or kind in kinds:
                files = dict.fromkeys(place.loc.file for place in loaded.sources[kind].values.values())
                print(f"{kind:9} {spec.name:32} {', '.join(f for f in files)}")
