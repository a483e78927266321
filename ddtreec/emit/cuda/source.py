"""Prints a kernel: one source file of named constants and entry points around bodies of templates/cuh."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddtreec.core.paths import data_folder
from ddtreec.emit.cuda.base import Constant, Entry, KernelDraft, StageDraft, literals
from ddtreec.emit.environment import render

TEMPLATE = "kernels/kernel.cu.j2"
WIDTH = 100
"""Columns of a line."""

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
"""A header is included by its bare name everywhere: NVRTC tells headers apart by how they are spelt."""


@dataclass(frozen=True, slots=True)
class StructText:
    """One struct of named constants. `head`: its name and, behind a colon, the struct whose constants it shares."""

    head: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryText:
    """One entry point: bounds, signature and call, the latter two wrapped."""

    bounds: str
    signature: str
    call: str


@dataclass(frozen=True, slots=True)
class StageText:
    """What the template needs of one stage."""

    structs: tuple[StructText, ...]
    entries: tuple[EntryText, ...]


def kernel_source(draft: KernelDraft) -> str:
    """The text of src/kernels/<name>.cu."""
    values = {
        "name": draft.name,
        "template": TEMPLATE,
        "summary": wrapped(draft.summary, "// ", "// ", " "),
        "includes": "\n".join(sorted({f'#include "{stage.include}"' for stage in draft.stages})),
        "stages": [_stage(stage) for stage in draft.stages],
    }
    return render(TEMPLATE, values).rstrip() + "\n"


def header_sources(sources: Iterable[str]) -> dict[str, str]:
    """The headers that these sources include, and those that they include, by name ('rows.cuh'), sorted."""
    found: dict[str, str] = {}
    wanted = [name for text in sources for name in INCLUDE.findall(text)]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = (data_folder("templates") / "cuh" / name).read_text()
            wanted += INCLUDE.findall(found[name])
    return dict(sorted(found.items()))


def _stage(stage: StageDraft) -> StageText:
    """A stage of one variant has one struct; of several, those that differ build on the shared one."""
    camel = "".join(word.capitalize() for word in stage.name.split("_"))
    shared = dict(stage.constants)
    if len(stage.entries) == 1:
        shared |= stage.entries[0].constants
    structs = [StructText(camel, _constants(shared))]
    entries: list[EntryText] = []
    for entry in stage.entries:
        name = camel
        if len(stage.entries) > 1 and entry.constants:
            name = f"{camel}M{entry.rows}"
            structs.append(StructText(f"{name} : {camel}", _constants(entry.constants)))
        entries.append(_entry(stage, entry, name))
    return StageText(tuple(structs), tuple(entries))


def _entry(stage: StageDraft, entry: Entry, struct: str) -> EntryText:
    params = ", ".join(f"{param.type} {param.name}" for param in stage.params)
    names = ", ".join(param.name for param in stage.params)
    head, call = f"{stage.function(entry)}(", f"  ddt::{stage.body}<{struct}>("
    return EntryText(
        bounds=f"{entry.threads}, {entry.blocks}",
        signature=wrapped(f"{params}) {{", head, " " * len(head)),
        call=wrapped(f"{names});", call, " " * len(call)),
    )


def _constants(constants: Mapping[str, Constant]) -> tuple[str, ...]:
    return tuple(
        f"using {name} = {text};" if kind == "using" else f"static constexpr {kind} {name} = {text};"
        for kind, name, text in literals(constants)
    )


def wrapped(text: str, first: str, further: str, behind: str = ", ") -> str:
    """`text` behind `first`, broken behind `behind` where it is too long; what follows stands behind `further`."""
    lines: list[str] = []
    while len(first) + len(text) > WIDTH:
        at = text.rfind(behind, 0, WIDTH - len(first))
        if at < 0:
            break
        cut = at + len(behind.rstrip())
        lines.append((first + text[:cut]).rstrip())
        text, first = text[cut:].lstrip(), further
    return "\n".join((*lines, first + text))
