"""Kimi K2.6 cut to three layers at its real widths: one dense, two of experts; its drafter cut to two.

Made from the shipped specs by editing the lines that count layers, so that nothing else can differ. An edit whose line
is not there any more is an error.
"""

from __future__ import annotations

from pathlib import Path

from ddtreec.core.paths import data_folder

ENGINES: dict[str, dict[str, str]] = {
    "tp8": {"topology": "h200-x8", "experts": "ep1xtp8"},
    "ep8": {"topology": "h200-x8", "experts": "ep8xtp1"},
    "one": {"topology": "h200-x1", "experts": "auto"},
}
"""By name: eight ranks that cut every expert, eight that hold 48 experts each, and one GPU with all of it."""

MODEL_EDITS = (
    ("name: kimi-k2.6\n", "name: kimi-k2.6-three-layers\n"),
    ("{repeat: 60, blocks: [attention, moe]}", "{repeat: 2, blocks: [attention, moe]}"),
)
DRAFTER_EDITS = (
    ("name: kimi-k2.6-dflash\n", "name: kimi-k2.6-dflash-two-layers\n"),
    ("  layers: 61\n", "  layers: 3\n"),
    ("taps: [1, 12, 24, 35, 47, 58]", "taps: [0, 1, 2]"),
    ("features: 43008", "features: 21504"),
    ("{repeat: 5, blocks: [context_w2048]}", "{repeat: 1, blocks: [context_w2048]}"),
    ("{repeat: 5, blocks: [attention_w2048, mlp]}", "{repeat: 1, blocks: [attention_w2048, mlp]}"),
)
ENGINE = """kind: engine
version: 1
name: k26-wide-{name}
model: ./model.yaml
quant: int4-g32-experts
drafter: ./drafter.yaml
tree: ddtree-8
topology: {topology}
dtype: bfloat16
layout: {{experts: {experts}}}
limits: {{context: 8192, sequences: 1, chunk: 128, page: 16}}
"""


def write_specs(folder: Path, name: str) -> Path:
    """The specs of an engine of ENGINES in `folder`; the path of engine.yaml. Raises ValueError for a stale edit."""
    specs = data_folder("specs")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(edited(specs / "models" / "kimi-k2.6.yaml", MODEL_EDITS))
    (folder / "drafter.yaml").write_text(edited(specs / "drafters" / "kimi-k2.6-dflash.yaml", DRAFTER_EDITS))
    engine = folder / "engine.yaml"
    engine.write_text(ENGINE.format(name=name, **ENGINES[name]))
    return engine


def edited(path: Path, edits: tuple[tuple[str, str], ...]) -> str:
    """The text of a spec with every edit made wherever its line stands."""
    text = path.read_text()
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{path}: '{old.strip()}' is not there any more")
        text = text.replace(old, new)
    return text
