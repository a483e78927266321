"""The JSON of a measurement. `encode` and `decode` are its only writer and reader."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddtreec.core.errors import BundleError, Problem, SpecError
from ddtreec_runtime.bench.record import Stamp

REPORT_FORMAT = 1
"""Raised when a field changes meaning; readers take this number and no other."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every record."""


class Estimate(Struct, frozen=True):
    """Tokens committed per round, pooled over `prompts`. `low`, `high`: 95 % interval over prompts, None under two."""

    value: float
    low: float | None
    high: float | None
    rounds: int
    tokens: int
    prompts: int


class Share(Struct, frozen=True):
    """How drafts at one place fared. `place`: depth from 1, or rank from 0.

    Of a depth, all three count rounds: whose accepted path came to the parent (`reached`), whose tree held a child
    (`offered`), that took one (`accepted`). Of a rank, `reached` counts nodes on accepted paths, `offered` children of
    that rank below them, `accepted` those taken.
    """

    place: int
    reached: int
    offered: int
    accepted: int


class Speed(Struct, frozen=True):
    """Whole generations by the engine, one sequence at a time. `tokens_per_s`: tokens after the first per second of
    decode, over all runs; `ratio_to_off`: median over prompts of the ratio within one prompt; `variation`: standard
    deviation of tokens/s over prompts by its mean. `rounds`: rounds that the replay tells of these prompts;
    `rounds_equal`: those in which the engine committed as many.
    """

    runs: int
    tokens_per_s: float
    ratio_to_off: float
    variation: float
    rounds: int
    rounds_equal: int


class Experts(Struct, frozen=True):
    """Routed experts a verify step touches, means over its MoE layers and `steps` steps.

    rows: rows of a step. distinct: experts some row chose. independent: E (1 - (1 - k / E)^rows), what rows that
    choose k of E independently and evenly would touch. overlap: (distinct - k) / (independent - k), None for one row.
    by_layer: `distinct` of each MoE layer.
    """

    steps: int
    rows: float
    distinct: float
    independent: float
    overlap: float | None
    by_layer: tuple[float, ...]


class ModeResult(Struct, frozen=True):
    """One way to decode. `budget`: most tree nodes besides the root. `tau_not_looping`: without looping texts."""

    name: str
    mode: Literal["off", "chain", "tree"]
    budget: int
    tau: Estimate
    tau_not_looping: Estimate | None
    depths: tuple[Share, ...]
    ranks: tuple[Share, ...]
    speed: Speed | None
    experts: Experts | None


class TemperatureResult(Struct, frozen=True):
    """All modes on the same texts. looping, ended: texts that loop, texts that a stop token ended. positions: tokens
    that one pass over the whole text picked again; differing: those picked otherwise; near_ties: greedy ones whose best
    two logits are less than 1e-3 apart.
    """

    temperature: float
    prompts: int
    looping: int
    ended: int
    positions: int
    near_ties: int
    differing: int
    modes: tuple[ModeResult, ...]


class Report(Struct, frozen=True):
    """One measurement. `experts`, `top_k`: of a MoE layer, 0 without any. `sequences`: how many ran at once."""

    format: int
    kind: Literal["tau"]
    stamp: Stamp
    engine: str
    drafter: str
    dtype: str
    block: int
    tree: str
    prompts_sha256: str
    prompts: int
    max_new_tokens: int
    seed: int
    sequences: int
    experts: int
    top_k: int
    seconds: float
    temperatures: tuple[TemperatureResult, ...]


def encode(report: Report) -> bytes:
    """Report to indented JSON text ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode(data: bytes, source: str = "report") -> Report:
    """JSON text to Report; `source` names it in errors. Raises SpecError M006 on what is none, BundleError M007 on
    another format number.
    """
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        number = msgspec.json.decode(head.get("format", b"null"), type=int)
        if number == REPORT_FORMAT:
            return msgspec.json.decode(data, type=Report)
    except msgspec.DecodeError as error:
        way = "make one with `ddtreec bench --json FILE`"
        raise SpecError(Problem("M006", f"{source} is no measurement: {error}", help=way)) from error
    raise BundleError(
        Problem(
            "M007",
            f"{source} is a measurement of format {number}; this ddtreec reads format {REPORT_FORMAT}",
            help="measure again with this version",
        )
    )
