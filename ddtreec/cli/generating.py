"""What `run` and `trace` share: the options of a generation, and the shipped pair where nothing is named."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ddtreec.core.errors import BundleError, Loc, Problem, SpecError
from ddtreec.core.paths import data_folder

Command = TypeVar("Command", bound=Callable[..., Any])

PAIR, PAIR_ENGINE = "tiny-pair", "tiny-k2-cpu"
"""The trained toy pair: its folder in models/ and its engine spec."""

OPTIONS = (
    click.argument("bundle", type=click.Path(path_type=Path), required=False),
    click.option(
        "--weights", type=click.Path(path_type=Path), help="Checkpoint directory of the target; needed with BUNDLE."
    ),
    click.option(
        "--drafter-weights", type=click.Path(path_type=Path), help="Checkpoint directory of the DFlash drafter."
    ),
    click.option("--prompt", help="The prompt as text."),
    click.option("--prompt-file", type=click.Path(path_type=Path), help="A file whose whole text is the prompt."),
    click.option("--prompt-ids", metavar="1,2,3", help="The prompt as token ids; needs no tokenizer."),
    click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True),
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy, e.g. 0.8 draws."),
    click.option(
        "--top-p", type=float, default=1.0, show_default=True, help="Draw among the best that reach this share."
    ),
    click.option("--top-k", type=int, default=0, show_default=True, help="Draw among the k best, e.g. 40; 0 is off."),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed draws the same text."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends the output; repeatable."),
    click.option("--speculation", type=click.Choice(["tree", "chain", "off"]), help="[default: what the bundle says]"),
    click.option("--budget", type=int, help="Tree nodes besides the root, e.g. 8.  [default: what the bundle says]"),
    click.option(
        "--dtype", type=click.Choice(["float32", "bfloat16", "float64"]), help="[default: what the bundle says]"
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="CPU threads.  [default: what the model's matrices are worth, 1 for small ones]",
    ),
)


def options(command: Command) -> Command:
    """Adds the argument BUNDLE and all options of a generation, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Source:
    """What a generation runs on: a bundle and the checkpoints for it."""

    bundle: Path
    weights: Path
    drafter: Path | None


@contextlib.contextmanager
def source(bundle: Path | None, weights: Path | None, drafter: Path | None) -> Generator[Source]:
    """The bundle and weights that were named, or the shipped pair where no BUNDLE was.

    The shipped pair is compiled into a folder of its own that is gone afterwards. Raises SpecError R030, R031.
    """
    if bundle is not None:
        if weights is None:
            if not bundle.exists():
                hint = "compile one: ddtreec compile ENGINE -o DIR; with no BUNDLE the shipped pair runs"
                raise BundleError(Problem("B020", "there is no such bundle", Loc(str(bundle)), help=hint))
            raise SpecError(
                Problem(
                    "R030", "the bundle has no weights", Loc(str(bundle)), help="name the checkpoint: --weights DIR"
                )
            )
        yield Source(bundle, weights, drafter)
        return
    if weights is not None or drafter is not None:
        raise SpecError(
            Problem(
                "R030",
                "weights are named, but no bundle",
                help="name the bundle too: ddtreec run BUNDLE --weights DIR; with neither, the shipped pair runs",
            )
        )
    pair = data_folder("models") / PAIR
    if not (pair / "target").is_dir():
        raise SpecError(
            Problem(
                "R031", "the tiny pair is not in this installation", Loc(str(pair)), help="name a bundle and weights"
            )
        )
    from ddtreec.driver import compile_engine

    with tempfile.TemporaryDirectory(prefix="ddtreec-") as folder:
        compiled = compile_engine(PAIR_ENGINE, out=Path(folder) / PAIR)
        assert compiled.out is not None
        yield Source(compiled.out, pair / "target", pair / "drafter")


def refuse_early(given: dict[str, Any]) -> None:
    """Says what is wrong with sampling and stop strings before the weights load, not after."""
    from ddtreec_runtime.sampling import SamplingParams
    from ddtreec_runtime.text import StopStrings

    SamplingParams(given["temperature"], given["top_p"], given["top_k"], given["seed"])
    StopStrings(given["stop"])
