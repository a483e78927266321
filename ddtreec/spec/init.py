"""A checkpoint folder to a folder of specs: engine.yaml, model.yaml, quant.yaml and, with a drafter, drafter.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddtreec.core.errors import Problem, SpecError
from ddtreec.core.paths import display, staged_folder
from ddtreec.spec import text
from ddtreec.spec.drafter_config import Drafter, read_drafter
from ddtreec.spec.drafter_graph import drafter_text
from ddtreec.spec.find import is_path, locate
from ddtreec.spec.graphs import model_text
from ddtreec.spec.load import load_engine, load_spec
from ddtreec.spec.schema import TopologySpec
from ddtreec.spec.source import Data
from ddtreec.spec.target_config import Target, read_target

CONTEXT = 4096
"""The default context where the model allows it."""
FILES = ("engine.yaml", "model.yaml", "quant.yaml", "drafter.yaml")
"""All that is ever written; a folder with anything else in it is never replaced."""
PRODUCT_COMMENT = "product: bf16 rounds q * scale to bfloat16 (Hugging Face, Marlin); exact keeps the compute dtype"


@dataclass(frozen=True, slots=True)
class Request:
    """What `ddtreec init` was asked for. `tree` None means ddtree-16 with a drafter and no tree without."""

    checkpoint: Path
    out: Path
    drafter: Path | None = None
    topology: str = "cpu"
    tree: str | None = None
    context: int | None = None
    latent_eps: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The files written, in order, and remarks for the person."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def init(request: Request) -> Written:
    """Read the checkpoint and write the folder, all or nothing. Raises CheckpointError and SpecError."""
    _check_out(request)
    topology = load_spec("topology", _found("topology", request.topology)).spec
    assert isinstance(topology, TopologySpec)
    tree = request.tree or ("ddtree-16" if request.drafter else None)
    if tree is not None:
        load_spec("tree", _found("tree", tree))
    slug = _slug(request.checkpoint)
    target = read_target(_folder(request.checkpoint), slug, request.latent_eps)
    drafter = read_drafter(_folder(request.drafter), _slug(request.drafter)) if request.drafter else None
    files = {
        "model.yaml": model_text(target.facts, _model_comment(target)),
        "quant.yaml": quant_text(target.group),
    }
    if drafter is not None:
        files["drafter.yaml"] = drafter_text(drafter.facts, _drafter_comment(drafter))
    files = {"engine.yaml": _engine_text(request, slug, target, topology, tree), **files}
    try:
        with staged_folder(request.out) as stage:
            for name, content in files.items():
                (stage / name).write_text(content, "utf-8")
            _check_written(stage, request.out)
    except OSError as error:
        message = f"cannot write {display(request.out)}: {error.strerror or error}"
        raise SpecError(Problem("S053", message, help="name another folder with -o")) from None
    notes = target.notes + (drafter.notes if drafter else ())
    return Written(tuple(request.out / name for name in files), notes)


def quant_text(group: int | None) -> str:
    """The quant spec for routed experts packed with `group`, or for none packed."""
    if group is None:
        lines = ["# Every weight as one float tensor.", "kind: quant", "version: 1", "name: bf16", "roles: {}"]
    else:
        packing = {"packing": "int4", "group": group, "product": "bf16"}
        lines = [
            f"# Routed experts: compressed-tensors pack-quantized, symmetric INT4, a scale for {group} inputs.",
            "kind: quant",
            "version: 1",
            f"name: int4-g{group}-experts",
            "roles:",
            f"  # {PRODUCT_COMMENT}.",
            f"  experts: {text.value(packing)}",
        ]
    return "\n".join(lines) + "\n"


def _engine_text(request: Request, slug: str, target: Target, topology: TopologySpec, tree: str | None) -> str:
    context = request.context or min(target.facts.positions, CONTEXT)
    heads: list[tuple[str, Data, str]] = [
        ("kind", "engine", ""),
        ("version", 1, ""),
        ("name", slug, ""),
        ("model", "model.yaml", "files beside this one"),
        ("quant", "quant.yaml", ""),
    ]
    if request.drafter is not None:
        heads.append(("drafter", "drafter.yaml", ""))
    if tree is not None:
        heads.append(("tree", _reference(tree, request.out), "chain, ddtree-8, ddtree-16, ddtree-32, ddtree-64"))
    heads.append(("topology", _reference(request.topology, request.out), "the machine: a shipped name or a path"))
    dtype = "float32" if topology.backend == "cpu" else "bfloat16"
    heads.append(("dtype", dtype, "of activations: float32, bfloat16 or float64"))
    limits: list[tuple[str, Data, str]] = [
        ("context", context, f"tokens, prompt and output together; the model allows {target.facts.positions}"),
        ("sequences", 1, "at a time"),
        ("chunk", min(64, context), "prefill rows of a step"),
        ("page", 16, "tokens of a KV page"),
    ]
    lines = ["# Written by `ddtreec init`. Edit freely; `ddtreec check` tells what does not fit."]
    return "\n".join([*lines, *text.noted(heads, 0), "limits:", *text.noted(limits, 2)]) + "\n"


def _model_comment(target: Target) -> Sequence[str]:
    lines = ["The layer graph of the checkpoint, written by `ddtreec init` from its config.json."]
    if target.facts.latent_eps != target.facts.eps:
        lines.append("q_norm and kv_norm keep the eps that Hugging Face uses there, not rms_norm_eps.")
    return lines


def _drafter_comment(drafter: Drafter) -> Sequence[str]:
    return ["The two layer graphs of the DFlash drafter, written by `ddtreec init` from its config.json."]


def _check_out(request: Request) -> None:
    out = request.out
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        state = "a link" if out.is_symlink() else "a file"
        raise SpecError(Problem("S053", f"{display(out)} is {state}, not a folder", help="name a folder with -o"))
    try:
        there = sorted(p.name for p in out.iterdir()) if out.is_dir() else []
        ours = out.resolve() == Path.cwd()
    except OSError as error:
        message = f"cannot read {display(out)}: {error.strerror or error}"
        raise SpecError(Problem("S053", message, help="name another folder with -o")) from None
    foreign = [name for name in there if name not in FILES]
    if foreign:
        message = f"{display(out)} holds files that init does not write: {', '.join(foreign[:5])}"
        raise SpecError(Problem("S053", message, help="name another folder with -o"))
    if ours:
        hint = "name a folder in it, e.g. -o specs: a folder that is replaced is another one afterwards"
        raise SpecError(Problem("S053", "the output is the working folder itself", help=hint))
    if there and not request.force:
        hint = "name another folder, or replace this one with --force"
        raise SpecError(Problem("S053", f"{display(out)} is not empty", help=hint))
    if request.tree is not None and request.drafter is None:
        hint = "add --drafter DIR, or leave --tree away to run without speculation"
        raise SpecError(Problem("S036", "a tree needs a drafter", help=hint))


def _folder(path: Path) -> Path:
    if path.is_dir():
        return path
    state = "is a file" if path.exists() else "does not exist"
    hint = "name a Hugging Face checkpoint folder with config.json in it"
    raise SpecError(Problem("S051", f"the checkpoint folder {display(path)} {state}", help=hint))


def _found(kind: str, ref: str) -> Path:
    return locate("topology" if kind == "topology" else "tree", ref, Path())


def _reference(ref: str, out: Path) -> str:
    # `..` behind a link leads elsewhere than it reads, so both ends are made real first
    return Path(os.path.relpath(Path(ref).resolve(), out.resolve())).as_posix() if is_path(ref) else ref


def _slug(path: Path) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", path.resolve().name.lower()).strip("-._")
    return name[:80] or "model"


def _check_written(stage: Path, out: Path) -> None:
    """What was written must load; problems name the files as they will be called."""
    try:
        load_engine(stage / "engine.yaml")
    except SpecError as error:
        here, there = display(stage), display(out)
        raise SpecError([_renamed(problem, here, there) for problem in error.problems]) from None


def _renamed(problem: Problem, here: str, there: str) -> Problem:
    loc = problem.loc
    if loc is not None:
        loc = type(loc)(loc.file.replace(here, there), loc.line, loc.col)
    words = [part.replace(here, there) for part in (problem.message, problem.note, problem.help)]
    return Problem(problem.code, words[0], loc, problem.source, words[1], words[2])
