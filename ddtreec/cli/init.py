"""`ddtreec init`: specs for a Hugging Face checkpoint."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import schema_json


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--drafter", type=click.Path(path_type=Path), help="Checkpoint folder of a DFlash drafter.")
@click.option("--topology", default="cpu", show_default=True, help="The machine: a shipped name or a path.")
@click.option("--tree", help="Tree spec: a shipped name or a path.  [default: ddtree-16 with a drafter]")
@click.option("--context", type=click.IntRange(min=1), help="Tokens, prompt and output.  [default: 4096 at most]")
@click.option(
    "--latent-norm-eps",
    type=click.FloatRange(min=0, min_open=True),
    help="eps of the q_a and kv_a norms, which config.json cannot say.  [default: 1e-6, as Hugging Face]",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@click.option("--force", is_flag=True, help="Replace the folder if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print files, notes and next steps as one JSON object.")
@guarded
def init(
    checkpoint: Path,
    drafter: Path | None,
    topology: str,
    tree: str | None,
    context: int | None,
    latent_norm_eps: float | None,
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write engine.yaml, model.yaml, quant.yaml and drafter.yaml for the checkpoint in the folder CHECKPOINT. Only
    config.json and the heads of its files are read.

    \b
    Example:
      ddtreec init Kimi-K2.6 --drafter Kimi-K2.6-DFlash --topology rtx-pro-6000-x8-pcie -o k26
    """
    from ddtreec.spec.init import Request
    from ddtreec.spec.init import init as write

    written = write(Request(checkpoint, out, drafter, topology, tree, context, latent_norm_eps, force))
    engine, bundle = shlex.quote(str(written.files[0])), Path(f"{out.name}-bundle")
    weights = f"--weights {shlex.quote(str(checkpoint))}"
    if drafter is not None:
        weights += f" --drafter-weights {shlex.quote(str(drafter))}"
    steps = [
        f"ddtreec check {engine}",
        f"ddtreec compile {engine} -o {shlex.quote(str(bundle))}",
        f"ddtreec run {shlex.quote(str(bundle))} {weights} --prompt 'Hello'",
    ]
    if as_json:
        files = [str(path) for path in written.files]
        sys.stdout.write(schema_json("init", {"files": files, "notes": list(written.notes), "next": steps}))
        return
    for note in written.notes:
        print(f"note: {note}", file=sys.stderr)
    for path in written.files:
        print(path)
    print("next:\n  " + "\n  ".join(steps), file=sys.stderr)
