"""Writes docs/gpu.md from what `benchmarks.gpu` measured and the topology's facts: the page holds no number of its own.

python -m benchmarks.gpu_page
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.gpu_fit import compared
from benchmarks.record import RESULTS
from ddtreec_runtime.bench.table import Table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
DEVICE = "h200"
CONTEXT = 8192
FLASH = "FlashMLA, causal only"

TOP = """# On a GPU, measured

Written by `python -m benchmarks.gpu_page` from `benchmarks/results/{device}_*.json`, which `python -m benchmarks.gpu`
writes on a machine with a GPU. Only one {name} has been measured. The topologies of sm_120 hold published numbers;
their kernels are compiled and run on an emulator, but nothing has been timed there.
"""

Found = Mapping[str, Any]


def render(rank: Found | None, pair: Found | None, verify: Found | None) -> str:
    """The page of one device; parts that were not measured are left out, and said to be."""
    known = [one for one in (rank, pair, verify) if one is not None]
    name = known[0]["device"]["name"] if known else "GPU"
    parts = [TOP.format(device=DEVICE, name=name)]
    for title, found, section in (
        ("One rank of Kimi K2.6", rank, _rank),
        ("The shipped pair", pair, _pair),
        ("Every kernel against the CPU", verify, _verify),
    ):
        parts += [f"## {title}", ""]
        parts += [facts(found), "", *section(found)] if found is not None else ["Not measured yet.", ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def facts(found: Found) -> str:
    """Where, when and how."""
    device, machine = found["device"], ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    taken = f" in {found['seconds']:.0f} s" if found["seconds"] else ""
    return (
        f"Measured on {found['date']} at commit {found['commit']} by `{found['command']}`{taken}: {found['how']}. "
        f"{device['name']} ({device['arch']}, {device['sms']} multiprocessors), driver {device['driver']}, CUDA "
        f"{device['cuda']}; {machine}."
    )


def shown(table: Table) -> list[str]:
    """A table with its title."""
    return [f"### {table.title}", "", table.markdown(), ""]


# ---- one rank ----


def _rank(found: Found) -> Iterator[str]:
    yield (
        f"Rank {found['rank']} of {found['ranks']} of `{found['engine']}`, alone on one device: what links take comes "
        f"on top. Floor: bytes that the step must read over {found['read_rate'] / 1e12:.2f} TB/s. Predicted: `ddtreec "
        "plan` without links, for the experts that were read; the drafter is not fitted."
    )
    yield ""
    yield from shown(steps(found))
    if found["left_out"]:
        yield f"Left out: {'; '.join(found['left_out'])}."
        yield ""
    if uneven := [str(s["rows"]) for s in found["steps"] if s["context"] == CONTEXT and not s["experts"]["even"]]:
        yield (
            f"Rows chose fewer experts than independent ones would at {', '.join(uneven)} rows: these steps read less "
            "than steps of real text, and are not set beside peers."
        )
        yield ""
    yield from shown(kernels(found))
    yield from _peers(found)


def steps(found: Found) -> Table:
    """Every program that was timed, with its prediction."""
    predicted = {(program, context, rows): ms for program, context, rows, _, ms in compared(found)}
    lines: list[tuple[str, ...]] = []
    for row in (*found["steps"], *found["drafter"]):
        program, spread = row.get("program", "target"), row.get("experts")
        ms = predicted[program, row["context"], row["rows"]]
        lines.append(
            (
                program,
                str(row["context"]),
                str(row["rows"]),
                f"{row['ms']:.3f}",
                f"{row['ms_least']:.3f} to {row['ms_most']:.3f}",
                f"{row['floor_ms']:.3f}",
                f"{row['floor_ms'] / row['ms']:.0%}",
                f"{row['gigabytes']:.2f}",
                f"{spread['mean']:.1f}" if spread else "",
                str(row["launches"]),
                f"{ms:.3f}",
                f"{ms / row['ms'] - 1:+.1%}",
            )
        )
    head = ("program", "context", "rows", "ms", "spread", "floor ms", "of it", "GB", "experts a layer", "launches")
    return Table("Steps", (*head, "predicted ms", "off"), tuple(lines))


def place(node: str) -> str:
    """A node without its layer."""
    return re.sub(r"^[LD]\d+\.", "", node)


def kernels(found: Found) -> Table:
    """Microseconds of each kernel by rows."""
    chosen = [step for step in found["steps"] if step["context"] == CONTEXT]
    times = {step["rows"]: {k["node"]: k for k in step["kernels"]} for step in chosen}
    first = chosen[0]["kernels"]
    lines = [
        (f"{place(k['node'])}", str(k["calls"]), *(f"{times[r][k['node']]['us_each']:.2f}" for r in times))
        for k in first
    ]
    head = ("kernel", "calls", *(f"{rows} rows" if rows > 1 else "1 row" for rows in times))
    return Table(f"Kernels at {CONTEXT} tokens, each apart: microseconds a call", head, tuple(lines))


def us_of(found: Found, context: int, rows: int, node: str) -> float | None:
    """Microseconds of the first kernel at a node of this name, None where it was not timed."""
    for step in found["steps"]:
        if (step["context"], step["rows"]) == (context, rows):
            return next((k["us_each"] for k in step["kernels"] if place(k["node"]) == node), None)
    return None


def _peers(found: Found) -> Iterator[str]:
    yield from ("### Beside others", "", f"{peers.SOURCE}.", "")
    missed: list[str] = []
    for make in (_goals, _experts, _attention, _products):
        table = make(found, missed)
        yield from (f"**{table.title}**", "", table.markdown(), "")
    yield "**Missed**"
    yield ""
    yield from (f"- {line}" for line in missed or ["nothing of the above"])
    yield ""


def _goals(found: Found, missed: list[str]) -> Table:
    """Whole steps."""
    lines: list[tuple[str, ...]] = []
    measured = {step["rows"]: step for step in found["steps"] if step["context"] == CONTEXT}
    for rows, goal in peers.GOALS.items():
        step = measured.get(rows)
        if step is None:
            continue
        fair = step["experts"]["even"]
        ms = f"{step['ms']:.2f}" if fair else f"({step['ms']:.2f})"
        lines.append((str(rows), ms, f"{goal:.1f}", f"{peers.STEP[rows]:.1f}", f"{step['floor_ms']:.2f}"))
        if not fair:
            missed.append(f"a step of {rows} rows: not measured with uniform routing")
        elif step["ms"] > goal:
            missed.append(f"a step of {rows} rows takes {step['ms']:.2f} ms; the goal is {goal:.1f} ms")
    head = ("rows", "ours, ms", "goal", "peers' kernels summed", "floor")
    return Table(f"A step of the target at {CONTEXT} tokens, links left out", head, tuple(lines))


def _experts(found: Found, missed: list[str]) -> Table:
    """Routed experts; ours with the shared one."""
    steps_of = {step["rows"]: step for step in found["steps"] if step["context"] == CONTEXT}
    counts = [rows for rows in steps_of if rows in peers.EXPERTS["Marlin MoE chain"]]
    ours: dict[int, float | None] = {}
    for rows in counts:
        fair = steps_of[rows]["experts"]["even"]
        ours[rows] = us_of(found, CONTEXT, rows, "moe.experts_shared") if fair else None
    lines = [("ours, shared expert included", *(told(ours[rows]) for rows in counts))]
    lines += [(name, *(told(times.get(rows)) for rows in counts)) for name, times in peers.EXPERTS.items()]
    for name in ("Marlin MoE chain", "Humming, align not counted"):
        for rows in counts:
            mine, other = ours[rows], peers.EXPERTS[name].get(rows)
            if mine is not None and other is not None and mine > other:
                missed.append(
                    f"experts at {rows} rows: {mine:.1f} us, {name} {other:.1f} us (without the shared expert)"
                )
    return Table("Experts of a layer, microseconds by rows", ("", *map(str, counts)), tuple(lines))


def _attention(found: Found, missed: list[str]) -> Table:
    """Attention over the latent cache; ours with W_uv."""
    timed = [(s["context"], s["rows"]) for s in found["steps"] if (s["context"], s["rows"]) in peers.ATTENTION[FLASH]]
    places = sorted(timed)
    ours = {at: us_of(found, *at, "attention.latent_attention_v_up") for at in places}
    lines = [("ours, tree mask and W_uv included", *(told(ours[at]) for at in places))]
    lines += [(name, *(told(times.get(at)) for at in places)) for name, times in peers.ATTENTION.items()]
    for at in places:
        mine, other = ours[at], peers.ATTENTION[FLASH][at]
        if mine is not None and mine > other:
            missed.append(f"attention at {at[0]} tokens, {at[1]} rows: {mine:.1f} us, {FLASH} {other:.1f} us (no W_uv)")
    head = ("", *(f"{context // 1024}k, {rows} row{'s' if rows > 1 else ''}" for context, rows in places))
    return Table("MLA attention of a layer, 8 heads, microseconds", head, tuple(lines))


def _products(found: Found, missed: list[str]) -> Table:
    """Matrix products; ours do more."""
    counts = [s["rows"] for s in found["steps"] if s["context"] == CONTEXT and s["rows"] <= 64]
    lines: list[tuple[str, ...]] = []
    for one in peers.PRODUCTS:
        times = {rows: us_of(found, CONTEXT, rows, one.node) for rows in counts}
        lines.append((one.peers, f"{one.low:g} to {one.high:g}", one.ours, *(told(times[rows]) for rows in counts)))
        late = [f"{us:.1f} at {rows}" for rows, us in times.items() if us is not None and us > one.high]
        if late:
            missed.append(f"{one.peers} {one.low:g} to {one.high:g} us; ours ({one.ours}): {', '.join(late)}")
    head = ("peer", "us, 1 to 64 rows", "ours does", *(f"ours at {rows}" for rows in counts))
    return Table("Products of a layer, microseconds", head, tuple(lines))


def told(us: float | None) -> str:
    """A time, or nothing."""
    return "" if us is None else f"{us:.1f}"


# ---- the pair, and every kernel ----


def _pair(found: Found) -> Iterator[str]:
    yield f"Engine `{found['engine']}`, trees of up to {found['budget']} nodes besides the root."
    yield ""
    head = ("rounds launched", "speculation", "tokens/s", "us a round", "tau")
    lines = [
        (o["launching"], o["speculation"], f"{o['tokens_per_s']:.0f}", f"{o['round_us']:.0f}", f"{o['tau']:.2f}")
        for o in found["one"]
    ]
    yield from shown(Table("One sequence at a time", head, tuple(lines)))
    counts = sorted({one["sequences"] for one in found["several"]})
    modes = list(dict.fromkeys(one["speculation"] for one in found["several"]))
    rates = {(one["speculation"], one["sequences"]): f"{one['tokens_per_s']:.0f}" for one in found["several"]}
    lines = [(mode, *(rates.get((mode, count), "") for count in counts)) for mode in modes]
    yield from shown(
        Table("Tokens/s of several sequences at a time, prefill included", ("", *map(str, counts)), tuple(lines))
    )
    lengths = sorted({one["tokens"] for one in found["prefill"]})
    modes = list(dict.fromkeys(one["speculation"] for one in found["prefill"]))
    times = {(one["speculation"], one["tokens"]): f"{one['ms']:.2f}" for one in found["prefill"]}
    lines = [(mode, *(times.get((mode, length), "") for length in lengths)) for mode in modes]
    yield from shown(Table("Milliseconds to the first token by prompt tokens", ("", *map(str, lengths)), tuple(lines)))


def _verify(found: Found) -> Iterator[str]:
    rows = found["kernels"]
    wrong = [one["kernel"] for one in rows if not one["ok"]]
    worst = max((one["error"] for one in rows if one["error"] is not None), default=0.0)
    yield (
        f"`ddtreec verify` of `{found['engine']}`: {len(rows)} kernels, "
        + (f"not ok: {', '.join(wrong)}" if wrong else f"all ok, worst error {worst:.1e}")
        + f" (at most {found['tolerance']:g} is allowed)."
    )
    yield ""
    lines = [
        (
            one["kernel"],
            one["program"],
            str(one["steps"]),
            f"{min(one['rows'])} to {max(one['rows'])}",
            "no number" if one["error"] is None else f"{one['error']:.1e}",
            "yes" if one["ok"] else "; ".join(one["faults"][:2]),
        )
        for one in rows
    ]
    head = ("kernel", "program", "steps", "rows", "worst error of a row", "ok")
    yield from shown(Table("Kernels", head, tuple(lines)))


def measured(part: str) -> Found | None:
    """The file of a part, None where there is none."""
    path = RESULTS / f"{DEVICE}_{part}.json"
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(measured("rank"), measured("pair"), measured("verify")))
    print(PAGE.name)


if __name__ == "__main__":
    main()
