"""What a caller may ask of an engine. Every refusal says what is wrong and a way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ddtreec.artifacts.plan import Plan, Program
from ddtreec.core.errors import BundleError, Loc, Problem, SpecError
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.drafting import Mode
from ddtreec_runtime.text import StopStrings, Tokenizer
from ddtreec_runtime.tree import Tree


def device(name: str) -> None:
    """R009 for a device that this runtime does not drive."""
    if name not in ("auto", "cpu", "cuda"):
        raise SpecError(Problem("R009", f"unknown device '{name}'", help="use 'auto', 'cpu' or 'cuda'"))


def threads(count: int | None) -> None:
    """R009 for a number of threads below 1."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise SpecError(Problem("R009", f"threads is {count!r}", help="give 1 or more, or None to let the plan decide"))


def backend(bundle: Bundle, asked: str = "auto") -> None:
    """B027 where the bundle is for a device that is not here, or not for the one that was asked for."""
    kind, way = bundle.plan.backend, "compile the engine for the CPU: ddtreec compile ENGINE.yaml --set topology=cpu"
    if asked not in ("auto", kind):
        found = f"the bundle is for {kind} ({bundle.plan.topology}), not for {asked}"
        if asked == "cuda":
            way = (
                "compile the engine for a GPU: ddtreec compile ENGINE.yaml --set topology=h200-x1 --set dtype=bfloat16"
            )
    elif kind == "cuda" and not torch.cuda.is_available():
        found = f"the bundle is for {kind} ({bundle.plan.topology}) and this machine has no CUDA device"
        if asked == "cuda":  # a bundle for the CPU would not serve this caller
            way = "do this on a machine with the GPU; the bundle can be copied there as it is"
    else:
        return
    note = blind_torch() if kind == "cuda" and asked != "cpu" else ""
    raise BundleError(Problem("B027", found, Loc(str(bundle.path)), note=note, help=way))


def blind_torch(driver: Path = Path("/proc/driver/nvidia/version")) -> str:
    """What to say where NVIDIA's driver is loaded and this torch cannot use it, else nothing."""
    if torch.version.cuda is not None or not driver.exists():
        return ""
    return f"NVIDIA's driver is loaded, but torch {torch.__version__} is built without CUDA; install one that has it"


def dtype(name: str, known: Mapping[str, object]) -> str:
    """The dtype's name; R009 for one that is not known."""
    if name not in known and len(known) == 1:
        (only,) = known
        raise SpecError(Problem("R009", f"this bundle runs in {only} alone, not in '{name}'", help="name no dtype"))
    if name not in known:
        raise SpecError(Problem("R009", f"unknown dtype '{name}'", help=f"use one of {', '.join(known)}"))
    return name


def tokens(ids: Sequence[int], plan: Plan, what: str, room: int, least: int = 1) -> list[int]:
    """`ids` as ints, fit to be followed by `room` more. R001 too few, R002 too many, R003 outside the vocabulary."""
    listed = [_whole(token, what) for token in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    context, vocab = plan.limits.context, plan.model.vocab
    if len(listed) < least:
        found = "is empty" if not listed else f"has {len(listed)} token"
        raise SpecError(Problem("R001", f"{what} {found}", help=f"give at least {least} token{'s' * (least > 1)}"))
    if len(listed) + room > context:
        note = f"and {room} more must fit" if room else ""
        raise SpecError(
            Problem(
                "R002",
                f"{what} has {len(listed)} tokens, the context of this engine is {context}",
                note=note,
                help=f"shorten it, or compile with --set limits.context={len(listed) + max(room, 128)}",
            )
        )
    for place, token in enumerate(listed):
        if not 0 <= token < vocab:
            raise SpecError(
                Problem(
                    "R003",
                    f"{what}: id {token} at place {place} is outside the vocabulary of {vocab}",
                    help="is this the tokenizer of another model?",
                )
            )
    return listed


def _whole(token: Any, what: str) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        raise SpecError(Problem("R003", f"{what}: {token!r} is no token id", help="give whole numbers"))
    return token.__index__()


def layer_value(layer: int | str, program: Program, plan: Plan) -> str:
    """Value that holds the residual after a layer. R010 for a layer that is not there."""
    norms = [call for call in program.calls if call.kernel == "rms_norm"]
    if layer == "embed":
        return norms[0].ins[0]
    if layer == "final":
        return norms[-1].outs[0]
    if isinstance(layer, int) and not isinstance(layer, bool) and 0 <= layer < len(program.layer_outputs):
        return program.layer_outputs[layer]
    raise SpecError(
        Problem("R010", f"no layer {layer!r}", help=f"use 0 to {plan.model.layers - 1}, 'embed' or 'final'")
    )


def tree(nodes: list[int], parents: Sequence[int], most: int) -> Tree:
    """The tree of these nodes. R008 where parents make no tree or it is too big for a step."""
    if len(nodes) > most:
        raise SpecError(
            Problem("R008", f"the tree has {len(nodes)} nodes, a step takes {most}", help="use a smaller tree")
        )
    try:
        return Tree.from_parents(torch.tensor(nodes[1:], dtype=torch.int32), list(parents))
    except (ValueError, TypeError) as error:
        raise SpecError(
            Problem("R008", f"this is no tree: {error}", help="parents[0] is -1 and parents[i] < i for the others")
        ) from None


def no_drafter(plan: Plan) -> Problem:
    """R005: a drafter is needed."""
    if plan.drafter is None:
        return no_drafter_planned("speculation")
    return Problem(
        "R005",
        "no drafter is loaded",
        note=f"the bundle was compiled for '{plan.drafter.name}'",
        help="give its checkpoint (--drafter-weights DIR, or drafter_dir), or use speculation 'off'",
    )


def no_drafter_planned(what: str) -> Problem:
    """R005: the bundle has no drafter."""
    return Problem(
        "R005",
        f"the bundle was compiled without a drafter, so it has no use for {what}",
        help="compile an engine that names one (ddtreec init CHECKPOINT --drafter DIR), or use speculation 'off'",
    )


def speculation(asked: str | None, plan: Plan, drafting: bool, nodes: int | None = None) -> Mode | None:
    """How to draft, None for plain decoding. R005 without a drafter where speculation or a tree of `nodes` is asked."""
    if asked is None:
        if nodes and 0 < nodes <= plan.tree.budget and not drafting:
            raise SpecError(no_drafter(plan))
        return ("chain" if plan.tree.mode == "chain" else "tree") if drafting else None
    if asked not in ("tree", "chain", "off"):
        raise SpecError(Problem("R005", f"unknown speculation {asked!r}", help="use 'tree', 'chain' or 'off'"))
    if asked == "off":
        return None
    if not drafting:
        raise SpecError(no_drafter(plan))
    return "chain" if asked == "chain" else "tree"


def budget(asked: int | None, plan: Plan, mode: Mode | None) -> int:
    """Tree nodes besides the root. R004 outside 0 .. the plan's budget."""
    most = plan.tree.budget
    if asked is None:
        return most if mode else 0
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        raise SpecError(
            Problem("R004", f"budget is {asked!r}; it counts tree nodes besides the root", help="use 0 or more")
        )
    if asked > most:
        raise SpecError(
            Problem(
                "R004",
                f"budget {asked} is more than the {most} this bundle was compiled for",
                help="compile with a larger tree (--set tree=ddtree-64), or use a smaller budget",
            )
        )
    return asked


def new_tokens(asked: int) -> int:
    """R006 below 1."""
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise SpecError(Problem("R006", f"max_new_tokens is {asked!r}", help="use a whole number, 1 or more"))
    return asked


def stops(asked: Sequence[str], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """R007 for stop strings without a tokenizer, R102 for an empty one."""
    listed = (asked,) if isinstance(asked, str) else tuple(asked)
    StopStrings(listed)
    if listed and tokenizer is None:
        raise SpecError(
            Problem(
                "R007",
                "stop strings need a tokenizer, and the checkpoint has no tokenizer.json",
                help="put its tokenizer.json beside the weights, or do without --stop",
            )
        )
    return listed
