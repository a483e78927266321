"""`ddtreec graph`: the layer graph of an engine after a pass, as text, Mermaid, DOT, JSON or a page."""

from __future__ import annotations

from pathlib import Path

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.complete import ENGINE, SETTING
from ddtreec.cli.output import deliver, unknown_name


@click.command("graph", short_help="Draw the layer graph of an engine: text, Mermaid, DOT, or a page to click through.")
@click.argument("engine", type=ENGINE)
@click.option(
    "--set", "overrides", multiple=True, type=SETTING, metavar="A.B=C", help="Override one value; repeatable."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "mermaid", "dot", "html", "json"]),
    help="What to write.  [default: by the name of -o, else text]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--after",
    type=click.Choice(["expand", "absorb", "shard", "fuse"]),
    default="fuse",
    show_default=True,
    help="The pass after which the graph is shown.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(["target", "draft_context", "draft_block"]),
    help="Only this program; repeatable.  [default: all]",
)
@click.option("--layer", default="", metavar="L03", help="Open this layer (text: only this layer).")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The file to write.  [default: standard output]")
@guarded
def graph(
    engine: str,
    overrides: tuple[str, ...],
    kind: str | None,
    as_json: bool,
    after: str,
    programs: tuple[str, ...],
    layer: str,
    out: Path | None,
) -> None:
    """Show the layer graph of ENGINE after a pass. Layers that are alike are told once.

    \b
    Examples:
      ddtreec graph tiny-k2-cpu
      ddtreec graph kimi-k2.6-rtx-pro-6000-x8-pcie -o graph.html
      ddtreec graph tiny-k2-cpu --format mermaid --program target --layer L03
    """
    from ddtreec import driver
    from ddtreec.emit.graph_page import graph_page
    from ddtreec.plan import graph_text
    from ddtreec.plan.build_view import graph_view
    from ddtreec.plan.view import encode
    from ddtreec.spec.load import load_engine

    kind = "json" if as_json else kind or _kind_of(out)
    state = driver.state_after(load_engine(engine, overrides), after)
    have = list(state.programs.graphs) if state.programs else []
    for name in programs:
        if name not in have:
            raise unknown_name("program", name, have, "the engine names no drafter")
    view = graph_view(state, after, programs)
    known = list(dict.fromkeys(name for p in view.programs for run in p.runs for name in run.names))
    if layer and layer not in known:
        raise unknown_name("layer", layer, known)
    texts = {"text": graph_text.text, "mermaid": graph_text.mermaid, "dot": graph_text.dot}
    if kind in texts:
        deliver(texts[kind](view, layer), out)
    else:
        deliver(graph_page(view, layer) if kind == "html" else encode(view).decode() + "\n", out)


def _kind_of(out: Path | None) -> str:
    known = {".html": "html", ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".json": "json"}
    return known.get(out.suffix, "text") if out else "text"
