"""Tensor names as people read them: templates, counts, near names, and prefixes that differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_PLACE = re.compile(r"(?:^|\.)(layers|blocks|experts)\.(\d+)(?=\.)")
_WRAPPERS = frozenset({"model", "language_model", "text_model", "transformer", "layers", "blocks"})


def template(name: str) -> str:
    """`name` with its numbers as `{layer}`, `{expert}` or `{n}`: equal for like tensors."""

    def place(match: re.Match[str]) -> str:
        word = "expert" if match[1] == "experts" else "layer"
        return match[0].replace(f"{match[1]}.{match[2]}", f"{match[1]}.{{{word}}}")

    return _NUMBER.sub("{n}", _PLACE.sub(place, name))


def who(names: Sequence[str]) -> str:
    """The group of tensors in words: '384 experts of layer 3', 'layers 1..60', '5 tensors'."""
    found: dict[str, set[int]] = {"layer": set(), "expert": set()}
    for name in names:
        for word, number in _PLACE.findall(name):
            found["expert" if word == "experts" else "layer"].add(int(number))
    layers = _runs(sorted(found["layer"]))
    if len(found["expert"]) > 1:
        count = len(names) if len(found["layer"]) > 1 else len(found["expert"])
        return f"{count} experts of {layers}" if layers else f"{count} experts"
    if len(found["layer"]) > 1:
        return layers
    return f"{len(names)} tensors"


def shown(names: Sequence[str]) -> str:
    """The template of a group with the numbers that all names share put back."""
    parts = [name.split(".") for name in names]
    held = template(names[0]).split(".")
    return ".".join(parts[0][i] if all(part[i] == parts[0][i] for part in parts) else held[i] for i in range(len(held)))


def _runs(numbers: list[int]) -> str:
    """[3] to 'layer 3'; [1, 2, 3, 7] to 'layers 1..3, 7'; [] to ''."""
    if len(numbers) < 2:
        return f"layer {numbers[0]}" if numbers else ""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "layers " + ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)


class NearNames:
    """Looks up what a missing name may be called in a checkpoint. `spare`: names the plan does not use itself."""

    def __init__(self, spare: Iterable[str]):
        self._by_core: dict[str, str] = {}
        self._by_numbers: dict[tuple[str, ...], list[str]] = {}
        for name in spare:
            self._by_core.setdefault(_core(name), name)
            self._by_numbers.setdefault(tuple(_NUMBER.findall(name)), []).append(name)

    def prefixes(self, missing: str) -> tuple[str, str] | None:
        """(prefix the plan uses, prefix the checkpoint uses) if the tensor is there under another prefix.

        A tensor that is there in the other packing (`weight` against `weight_packed`) counts too.
        """
        core = _core(missing)
        for there in (core, core + "_packed", core.removesuffix("_packed")):
            name = self._by_core.get(there)
            if name is not None:
                return _without_common_tail(missing[: len(missing) - len(core)], name[: len(name) - len(there)])
        return None

    def near(self, missing: str) -> list[str]:
        """Up to three names that look like a misspelling of `missing` (same layer and expert numbers)."""
        same = self._by_numbers.get(tuple(_NUMBER.findall(missing)), [])
        return difflib.get_close_matches(missing, same, n=3, cutoff=0.85)


def _core(name: str) -> str:
    """`name` without leading wrapper words: `language_model.model.layers.3.x` to `3.x`."""
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in _WRAPPERS:
        parts.pop(0)
    return ".".join(parts)


def _without_common_tail(one: str, two: str) -> tuple[str, str] | None:
    """Drops the words both prefixes end with; None if nothing differs."""
    a, b = one.split(".")[:-1], two.split(".")[:-1]
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    if a == b:
        return None
    return "".join(f"{word}." for word in a), "".join(f"{word}." for word in b)
