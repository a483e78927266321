"""The shipped model and drafter specs, made from the configurations in tests/data/configs.

`python tests/unit/shipped.py` writes them; test_spec_shipped.py compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ddtreec.spec.drafter_config import understand_drafter
from ddtreec.spec.drafter_graph import drafter_text
from ddtreec.spec.facts import TargetFacts
from ddtreec.spec.graphs import model_text
from ddtreec.spec.hf import read_config
from ddtreec.spec.target_config import understand

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"
LATENT = "The q_a and kv_a norms keep Hugging Face's 1e-6; vLLM and SGLang read rms_norm_eps there."

MODELS: dict[str, tuple[str, ...]] = {
    "kimi-k2.6": (
        "Kimi K2.6 (K2.5 differs in the end token only): text stack of the 1-trillion-parameter release, INT4 experts.",
        "595 GB of weights, 33 GB of them read for one token. The vision tower is skipped.",
        LATENT,
    ),
    "kimi-k2": (
        "Kimi K2 Instruct (July 2025), flat tensor names. The release is FP8, which is not read: this is for its bf16",
        "or INT4 re-saves. The September release and K2-Thinking have yarn factor 64 and 262144 positions.",
    ),
    "deepseek-v3": (
        "DeepSeek-V3, with routing limited to 4 of 8 groups. The release is FP8, which is not read: this is for its",
        "bf16 or INT4 re-saves. The multi-token-prediction layer (61) is skipped.",
    ),
    "moonlight-16b-a3b": (
        "Moonlight 16B-A3B: the DeepSeek-V3 architecture without a query latent; bf16, fits one 80 GB GPU.",
        "Base and Instruct differ in the end token; both end here.",
        LATENT.replace("q_a and kv_a norms keep", "kv_a norm keeps"),
    ),
    "tiny-k2": (
        "The architecture of Kimi K2.6 at toy size: the target of the trained pair in models/tiny-pair.",
        "It was trained with eps 1e-5 in every norm, the q_a and kv_a norms included.",
    ),
}
DRAFTERS: dict[str, tuple[str, ...]] = {
    "kimi-k2.6-dflash": (
        "The DFlash drafter of Kimi K2.6: 6 layers, about 6.5 GB in bf16, embedding and head shared with the target.",
        "Public sources disagree on two points, so both are plain fields here. Rotary amplitude: 1.0 by the yarn rule,",
        "1.41589 in one engine (set ropes.rope.amplitude). Windows: 2048 in layers 0-4, or 4096 in all.",
    ),
    "tiny-dflash": ("The DFlash drafter of the trained pair in models/tiny-pair.",),
}


def _tiny(facts: TargetFacts) -> TargetFacts:
    return replace(facts, latent_eps=facts.eps)


def _both_ends(facts: TargetFacts) -> TargetFacts:
    """[EOS] 163585 and <|im_end|> 163586 both end a text of the Kimi family."""
    return replace(facts, eos=(163585, 163586))


CHANGES: dict[str, Callable[[TargetFacts], TargetFacts]] = {
    "tiny-k2": _tiny,
    "kimi-k2.6": _both_ends,
    "moonlight-16b-a3b": _both_ends,
}


def texts() -> dict[str, str]:
    """Path under specs/ to text, for every spec that comes from a configuration."""
    found: dict[str, str] = {}
    for name, comment in MODELS.items():
        folder = CONFIGS / name
        generation = folder / "generation_config.json"
        extra = read_config(generation) if generation.exists() else None
        target = understand(read_config(folder / "config.json"), extra, frozenset(), name)
        facts = CHANGES.get(name, lambda same: same)(target.facts)
        found[f"models/{name}.yaml"] = model_text(facts, comment)
    for name, comment in DRAFTERS.items():
        drafter = understand_drafter(read_config(CONFIGS / name / "config.json"), frozenset(), name)
        found[f"drafters/{name}.yaml"] = drafter_text(drafter.facts, comment) + measured(name)
    return found


def measured(drafter: str) -> str:
    """The end of the shipped spec, from `expected_tau:` on: no configuration says it."""
    text = (ROOT / "specs" / "drafters" / f"{drafter}.yaml").read_text("utf-8")
    return text[text.index("expected_tau:") :]


if __name__ == "__main__":
    for path, text in texts().items():
        (ROOT / "specs" / path).write_text(text, "utf-8")
