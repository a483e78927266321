"""Writes docs/tau.md from benchmarks/results/tau.json and lossless.json, so that the page holds no number of its own.

python -m benchmarks.tau_page
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.record import RESULTS
from ddtreec_runtime.bench.report import Report, decode
from ddtreec_runtime.bench.table import notes, tables

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tau.md"

TOP = """# What drafts bring: the shipped pair, measured

![tau, speed, acceptance by depth and experts](images/tau.svg)

Written by `python -m benchmarks.tau_page` from `benchmarks/results/tau.json`.
"""

READING = """## How to read it

- **tau**: tokens committed per round, the bonus included. 1 is plain decoding. Rounds are those that start within the
  new tokens asked for and before a stop token; the text goes on a block further, so that the end cuts no round short.
- **tokens/s**, **to off**: decode of whole generations, one sequence at a time; the ratio is the median over prompts.
- **rows, experts, independent, overlap**: rows of a verify step; routed experts a MoE layer touches for them; how many
  it would touch if rows chose independently, E (1 - (1 - k/E)^rows); and (experts - k) / (independent - k).
- Sampled text: trees and chains are built from the drafter's law and from the numbers that the target will draw with.
  Positions decide these, so they are known before (`runtime/ddtreec_runtime/foresight.py`). No text depends on it.
- Texts are made once, without drafts. The rounds of every budget are told from the text and the drafts at their roots,
  and compared with the rounds of the engine's own generations (the count is above).
"""


def render(report: Report) -> str:
    """The page."""
    stamp = report.stamp
    machine = ", ".join(f"{name} {value}" for name, value in stamp.machine.items())
    facts = (
        f"Measured on {stamp.date} at commit {stamp.commit} (ddtreec {stamp.version}) by `{stamp.command}` in "
        f"{report.seconds:.0f} s. Machine: {machine}. Engine {report.engine}, drafter {report.drafter} (blocks of "
        f"{report.block}), seed {report.seed}."
    )
    parts = [TOP, facts, ""]
    parts += [f"- {note}" for note in notes(report)]
    parts.append("")
    for table in tables(report):
        parts += [f"### {table.title[0].upper()}{table.title[1:]}", "", table.markdown(), ""]
    return "\n".join([*parts, *_lossless(), READING])


def _lossless() -> list[str]:
    """What `benchmarks.lossless` found; nothing where it has not run."""
    source = RESULTS / "lossless.json"
    if not source.exists():
        return []
    found = json.loads(source.read_text())
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    budgets = ", ".join(map(str, found["budgets"]))
    lines = [
        "## Drafts never change the text",
        "",
        f"`{found['command']}` on {found['date']} at commit {found['commit']}, {machine} "
        f"(`benchmarks/results/lossless.json`): {found['prompts']} prompts, {found['tokens']} new tokens each, "
        f"{found['dtype']}. Chain and trees of {budgets} against plain decoding with the same seed, token by token. "
        "Texts that part at a near tie are left out (greedy: best two logits within 1e-3; drawn: the draw within 1e-5 "
        "of the edge).",
        "",
    ]
    for one in found["results"]:
        lines.append(
            f"- Temperature {one['temperature']:g}: {one['texts_compared']} texts of {one['tokens_compared']} tokens "
            f"compared, {one['near_ties_excluded']} part at a near tie, {len(one['faults'])} elsewhere."
        )
    return [*lines, ""]


def main() -> None:
    """Write the page."""
    source = RESULTS / "tau.json"
    PAGE.write_text(render(decode(source.read_bytes(), str(source.name))))
    print(PAGE.name)


if __name__ == "__main__":
    main()
