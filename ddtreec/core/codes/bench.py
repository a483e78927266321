"""Codes of measurements."""

from __future__ import annotations

from ddtreec.core.codes.entry import Code

BENCH: dict[str, Code] = {
    "M001": Code(
        "nothing to measure",
        "`ddtreec bench` measures what it is asked for: --tau.",
        "The flag was left out.",
        "Give --tau.",
        "ddtreec bench bundle --weights ckpt --prompts heldout.jsonl",
    ),
    "M002": Code(
        "budgets that cannot be",
        "--budgets lists different whole numbers, 1 or more, with commas.",
        "A word, a 0, or the same number twice.",
        "Give them like 4,8,16.",
        "--budgets 4,eight",
    ),
    "M003": Code(
        "temperatures that cannot be",
        "--temperatures lists different numbers, 0 or more, with commas.",
        "A word, a negative number, or the same number twice.",
        "Give them like 0,0.8.",
        "--temperatures warm",
    ),
    "M004": Code(
        "a plot or measurement cannot be written",
        "Plots end in .png or .svg, and the folder of every output exists and may be written.",
        "Another ending, or a missing folder.",
        "Make the folder, or name another file.",
        "--plot tau.pdf",
    ),
    "M005": Code(
        "plots need matplotlib",
        "matplotlib is an extra of ddtreec.",
        "It is not installed.",
        "Install ddtreec[plot], or leave --plot out.",
        "--plot tau.png",
    ),
    "M006": Code(
        "no measurement",
        "A measurement is the JSON that `ddtreec bench --json` wrote.",
        "Another file was named, or it was edited.",
        "Make one with `ddtreec bench --json FILE`.",
        "a plan.json",
    ),
    "M007": Code(
        "a measurement of another format",
        "A measurement is read by the version that wrote it, or a later one that knows its format.",
        "It is older or newer than this ddtreec.",
        "Measure again.",
        "a measurement of a newer ddtreec",
    ),
    "M008": Code(
        "no round to measure",
        "A prompt must leave room for at least a block of new tokens behind it.",
        "Prompts that fill the context, texts that end at once, or very few new tokens.",
        "Raise --max-new-tokens, shorten the prompts, or compile with a longer context.",
        "--max-new-tokens 1",
    ),
    "M010": Code(
        "one rank that cannot be measured so",
        "--rank 0 --synthetic takes a rank, row counts and a context that the bundle has.",
        "A bundle with fewer ranks, a smaller tree or a shorter context.",
        "Give others, or compile with a larger tree or limits.context.",
        "--rank 8 of a bundle for eight ranks",
    ),
}
