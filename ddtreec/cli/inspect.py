"""`ddtreec inspect`: what a bundle holds, and whether its files are as they were compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import as_json as json_text

if TYPE_CHECKING:
    from ddtreec.artifacts.kernels import Kernel, KernelTable, Variant
    from ddtreec.toolchain.inspect import Bundle

SCHEMA = "ddtreec.inspect/1"
CHANGED = 5
"""Exit code where a file is not as it was compiled."""


@click.command("inspect", short_help="Show what a bundle holds, and whether its files are as compiled.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@guarded
def inspect(bundle: Path, as_json: bool) -> None:
    """Show BUNDLE: manifest, files and the state of their digests, limits, layout, shard map, memory, CUDA kernels.

    Leaves with 5 where a file was edited or is missing.

    \b
    Example:
      ddtreec inspect generated/tiny-k2-cpu
    """
    from ddtreec.toolchain.inspect import read_bundle

    found = read_bundle(bundle)
    sys.stdout.write(json_text(facts(found)) if as_json else text(found))
    if not found.whole:
        sys.stdout.flush()
        wrong = [f for f in found.files if f.state != "ok"]
        print(f"{len(wrong)} of {len(found.files)} files are not as they were compiled", file=sys.stderr)
        sys.exit(CHANGED)


def facts(found: Bundle) -> dict[str, Any]:
    """All of it as plain data."""
    import msgspec

    from ddtreec.plan.holdings import holdings

    plan, manifest = found.plan, found.manifest
    kernels = (
        {}
        if found.kernels is None
        else {"arch": found.kernels.arch, "compiler": found.kernels.compiler, "kernels": kernel_facts(found.kernels)}
    )
    return {
        "schema": SCHEMA,
        "whole": found.whole,
        "manifest": {k: v for k, v in msgspec.to_builtins(manifest).items() if k != "files"},
        "files": [{"path": f.path, "bytes": f.bytes, "state": f.state} for f in found.files],
        "engine": plan.engine,
        "backend": plan.backend,
        "topology": plan.topology,
        "dtype": plan.dtype,
        "mesh": msgspec.to_builtins(plan.mesh),
        "model": msgspec.to_builtins(plan.model),
        "drafter": msgspec.to_builtins(plan.drafter),
        "tree": msgspec.to_builtins(plan.tree),
        "limits": msgspec.to_builtins(plan.limits),
        "buckets": list(plan.buckets),
        "layout": plan.layout,
        "shards": [msgspec.to_builtins(h) for h in holdings(plan.weights, plan.mesh)],
        "memory": [msgspec.to_builtins(row) for row in plan.memory],
        "programs": [
            {
                "name": p.name,
                "calls": len(p.calls),
                **({} if found.kernels is None else {"launches": launches(found.kernels, p.name)}),
                "max_rows": p.max_rows,
                "arena_bytes": p.arena_bytes,
                "kernels": _kernels(p.calls),
            }
            for p in plan.programs
        ],
        **kernels,
        "spec": found.spec,
    }


def launches(table: KernelTable, program: str) -> int:
    """Kernel launches of a step: the stages of all its calls, collectives not counted."""
    stages = {kernel.name: len(kernel.stages) for kernel in table.kernels}
    return sum(stages[name] for name in table.programs[program] if name)


def kernel_facts(table: KernelTable) -> list[dict[str, Any]]:
    """Every kernel: the calls it serves by program, its stages, and what each entry point takes."""

    def entry(kernel: Kernel, variant: Variant) -> dict[str, Any]:
        taken = table.resources.get(f"{kernel.name}:{variant.function}")
        facts = {"function": variant.function, "rows": variant.rows, "threads": variant.threads}
        if taken is None:
            return {**facts, "dynamic_shared": variant.shared}
        return {
            **facts,
            "registers": taken.registers,
            "shared": taken.shared + variant.shared,
            "dynamic_shared": variant.shared,
            "spills": taken.spills,
        }

    return [
        {
            "name": kernel.name,
            "calls": {name: calls.count(kernel.name) for name, calls in table.programs.items() if kernel.name in calls},
            "round": kernel.name in table.round,
            "stages": [
                {"name": stage.name, "early": stage.early, "entries": [entry(kernel, v) for v in stage.variants]}
                for stage in kernel.stages
            ],
        }
        for kernel in table.kernels
    ]


def _kernels(calls: tuple[Any, ...]) -> dict[str, int]:
    count: dict[str, int] = {}
    for call in calls:
        count[call.kernel] = count.get(call.kernel, 0) + 1
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def text(found: Bundle) -> str:
    """All of it for a reader."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Bundle) -> Iterator[str]:
    from ddtreec.core.units import format_bytes
    from ddtreec.plan.holdings import holdings
    from ddtreec.plan.text import table

    plan, manifest, mesh = found.plan, found.manifest, found.plan.mesh
    ranks = "1 rank" if mesh.ranks == 1 else f"{mesh.ranks} ranks, experts ep {mesh.ep} x tp {mesh.tp}"
    yield f"bundle {manifest.engine}"
    yield f"  {plan.model.name} on {plan.topology} ({plan.backend}), {ranks}, {plan.dtype}"
    yield f"  compiled by ddtreec {manifest.tool}, spec {manifest.spec_digest[:16]}"
    yield f"  overrides: {', '.join(f'--set {o}' for o in manifest.overrides) or 'none'}"
    if manifest.edited:
        yield f"  edited by hand: {', '.join(manifest.edited)}"
    yield from ("", "files")
    rows = [(f.path, str(f.bytes), f.state) for f in found.files]
    yield from table(("path", "bytes", "state"), rows)
    limits, model = plan.limits, plan.model
    yield from ("", "limits")
    yield f"  context {limits.context}, sequences {limits.sequences}, chunk {limits.chunk}, page {limits.page}"
    yield f"  buckets {' '.join(map(str, plan.buckets))}"
    yield from ("", "model")
    yield f"  {model.layers} layers, hidden {model.hidden}, vocabulary {model.vocab}, positions {model.positions}"
    yield f"  eos {' '.join(map(str, model.eos))}, bos {model.bos}, pad {model.pad}"
    if plan.drafter is not None:
        drafter, tree = plan.drafter, plan.tree
        yield f"  drafter {drafter.name}: block {drafter.block}, taps {' '.join(map(str, drafter.taps))}"
        yield f"  tree {tree.name}: {tree.mode}, budget {tree.budget}, depth {tree.depth}"
    yield from ("", "layout")
    yield from (f"  {question}: {answer}" for question, answer in plan.layout.items())
    if not plan.layout:
        yield "  one rank: nothing to choose"
    yield from ("", "shard map, sizes of one rank as the checkpoint packs them")
    held = [
        (h.role, h.tensor, h.packing, h.cut, f"{h.count}", format_bytes(h.bytes)) for h in holdings(plan.weights, mesh)
    ]
    yield from table(("role", "tensor", "packing", "cut", "count", "size"), held, left=4)
    yield from ("", "memory of one rank")
    yield from table(
        ("purpose", "size", "bytes"), [(r.purpose, format_bytes(r.bytes), str(r.bytes)) for r in plan.memory]
    )
    yield from ("", "programs")
    programs = [
        (p.name, str(len(p.calls)), str(p.max_rows), " ".join(f"{k} {n}" for k, n in _kernels(p.calls).items()))
        for p in plan.programs
    ]
    yield from ("  " + "  ".join(row).rstrip() for row in _left(("program", "calls", "rows", "kernels"), programs))
    if found.kernels is not None:
        counts = ", ".join(f"{p.name} {launches(found.kernels, p.name)}" for p in plan.programs)
        yield f"  launches of a step, collectives not counted: {counts}"
        by = f" by {found.kernels.compiler}" if found.kernels.compiler else ""
        yield from ("", f"kernels for {found.kernels.arch}{by}: registers of a thread, shared bytes of a block")
        yield from _kernel_lines(found.kernels)


def _kernel_lines(kernels: KernelTable) -> Iterator[str]:
    """A line a kernel with the calls it serves, below it a line an entry point."""
    from ddtreec.plan.text import table

    columns = ("rows", "threads", "registers", "shared", "spills")
    rows: list[tuple[str, ...]] = []
    for kernel in kernel_facts(kernels):
        calls = [f"{name} {count}" for name, count in kernel["calls"].items()] or ["round"]
        rows.append((f"{kernel['name']} ({', '.join(calls)})", *("",) * len(columns)))
        entries = [entry for stage in kernel["stages"] for entry in stage["entries"]]
        rows += [(f"  {e['function']}", *(str(e.get(column, "-")) for column in columns)) for e in entries]
    yield from table(("kernel (calls) and entry points", *columns), rows)


def _left(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        yield tuple(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
