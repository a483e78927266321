"""The whole compile on one screen: from the name of an engine to a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddtreec import __version__
from ddtreec.artifacts import kernels as kernel_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.kernels import KERNELS
from ddtreec.artifacts.manifest import PLAN, STEP, Manifest
from ddtreec.core.digest import canonical_json
from ddtreec.core.errors import BundleError, DdtreecError, FitError, Problem
from ddtreec.core.units import parse_bytes
from ddtreec.passes import stages
from ddtreec.passes.state import State
from ddtreec.plan import report as reports
from ddtreec.plan.assemble import assemble
from ddtreec.plan.nearest import with_ways_out
from ddtreec.plan.text import text as report_text
from ddtreec.spec.load import LoadedEngine, load_engine
from ddtreec.toolchain import binaries, bundle
from ddtreec.toolchain.binaries import Progress

Stage = Literal["spec", "graph", "plan", "src", "bundle"]
STAGES: tuple[Stage, ...] = ("spec", "graph", "plan", "src", "bundle")


KernelPlan = tuple[reports.Report, plan_file.Plan, kernel_file.KernelTable, dict[str, str]]


@dataclass(frozen=True)
class Pass:
    """One pass: pure, then its verifier (raises VerifyError), then the text that a person can read."""

    name: str
    run: Callable[[State], State]
    verify: Callable[[State, State], None]
    dump: Callable[[State], str]


PIPELINE = (
    Pass("expand", stages.expand, stages.verify_expand, stages.dump_graphs),
    Pass("absorb", stages.absorb, stages.verify_absorb, stages.dump_graphs),
    Pass("shard", stages.shard, stages.verify_shard, stages.dump_shard),
    Pass("fuse", stages.fuse, stages.verify_fuse, stages.dump_graphs),
    Pass("schedule", stages.schedule, stages.verify_schedule, stages.dump_schedule),
    Pass("memory", stages.memory, stages.verify_memory, stages.dump_memory),
    Pass("cost", stages.cost, stages.verify_cost, stages.dump_cost),
)
"""The order of the passes."""


@dataclass(frozen=True)
class Compiled:
    """What a compile made: the text files by path in the bundle and, at the last stage, where they were written."""

    engine: str
    files: dict[str, bytes]
    out: Path | None = None


def passes(loaded: LoadedEngine, last: str = "") -> Iterator[tuple[Pass, State]]:
    """Every pass, or those up to `last`, with the state behind it, verified.

    Raises DdtreecError for the user's mistakes (where it does not fit with what else would), VerifyError for ours.
    """
    try:
        yield from _run(loaded, last)
    except FitError as error:
        raise with_ways_out(error, loaded, fits) from None


def fits(loaded: LoadedEngine) -> bool:
    """Whether the engine divides over its devices and fits."""
    try:
        for _ in _run(loaded, "memory"):
            pass
    except DdtreecError:
        return False
    return True


def _run(loaded: LoadedEngine, last: str) -> Iterator[tuple[Pass, State]]:
    state = State(loaded)
    for step in PIPELINE:
        before, state = state, step.run(state)
        step.verify(before, state)
        yield step, state
        if step.name == last:
            return


def planned(loaded: LoadedEngine) -> State:
    """The state after the last pass."""
    return list(passes(loaded))[-1][1]


def states_until(loaded: LoadedEngine, last: str) -> dict[str, State]:
    """The state behind each pass up to `last`, by name; no later pass runs. Raises DdtreecError and VerifyError."""
    found: dict[str, State] = {}
    for step, state in passes(loaded):
        found[step.name] = state
        if step.name == last:
            break
    return found


def state_after(loaded: LoadedEngine, name: str) -> State:
    """The state behind the pass `name`. Raises DdtreecError, VerifyError, and KeyError for a name that is no pass."""
    return states_until(loaded, name)[name]


def check(loaded: LoadedEngine) -> None:
    """Everything that can be wrong without weights and devices: graphs, layout, fit. Raises DdtreecError."""
    for _ in passes(loaded, last="memory"):
        pass


def plan(loaded: LoadedEngine) -> reports.Report:
    """What would run, where, and how fast. Writes nothing. Raises DdtreecError."""
    state = planned(loaded)
    told, plan = reports.report(state), assemble(state)
    return told if plan.backend == "cpu" else _with_kernels(told, plan, state)[0]


def _with_kernels(told: reports.Report, plan: plan_file.Plan, state: State) -> KernelPlan:
    """The report and the plan with what the kernels of a GPU take, their table, and their sources."""
    from ddtreec.emit.cuda.memory import with_kernel_memory  # here, so that `check` need not load Jinja
    from ddtreec.emit.cuda.table import kernel_table

    table, sources = kernel_table(state)
    plan = with_kernel_memory(plan, table)
    return reports.with_kernels(told, plan.memory, table), plan, table, sources


def build_files(
    loaded: LoadedEngine, to: Stage = "bundle", override: Path | None = None, progress: Progress | None = None
) -> dict[str, bytes]:
    """The files of a bundle up to a stage, manifest excluded, by relative path. The same input gives the same bytes.

    `override`: a folder of hand-edited kernels that stand in for those of the same name.
    """
    return _build(loaded, to, override, progress)[0]


def _build(
    loaded: LoadedEngine, to: Stage, override: Path | None, progress: Progress | None
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files, and the paths of those that `override` replaced."""
    files = {"spec.json": pretty_json(loaded.resolved())}
    if to == "spec":
        return files, ()
    state = State(loaded)
    for number, (step, state) in enumerate(passes(loaded), 1):
        files[f"graph/{number:02d}-{step.name}.txt"] = step.dump(state).encode()
    if to == "graph":
        return files, ()
    plan = assemble(state)
    files[PLAN] = plan_file.encode(plan)
    told = reports.report(state)
    files["plan.txt"] = report_text(told).encode()
    if to == "plan":
        return files, ()
    from ddtreec.emit.step import step_program  # here, so that `check` and `plan` need not load Jinja

    if plan.backend == "cpu":
        files[STEP] = step_program(plan).encode()
        return files, ()
    told, plan, table, sources = _with_kernels(told, plan, state)
    files[PLAN] = plan_file.encode(plan)
    files["plan.txt"] = report_text(told).encode()
    files[STEP] = step_program(plan, table).encode()
    edited: tuple[str, ...] = ()
    if override is not None:
        sources, edited = binaries.with_overrides(sources, override)
    files |= {path: text.encode() for path, text in sources.items()}
    if to == "bundle":
        table, cubins = binaries.build(table, sources, shared_limit(loaded), edited, progress)
        files |= cubins
    files[KERNELS] = kernel_file.encode(table)
    return files, edited


def compile_engine(
    ref: str | Path,
    overrides: Sequence[str] = (),
    to: Stage = "bundle",
    out: Path | None = None,
    override: Path | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compiles the engine `ref` (a shipped name or a path) with `--set` overrides up to a stage.

    `out`: the folder to write, by one rename; a bundle goes to ./generated/<engine> without it, earlier stages are
    then not written. `override`: a folder of hand-edited kernels; the manifest names those that were taken. Raises
    SpecError, FitError, BundleError and VerifyError.
    """
    loaded = load_engine(ref, overrides)
    name = loaded.engine.name
    if override is not None and to not in ("src", "bundle"):
        raise BundleError(Problem("B033", f"--override: --to {to} stops before the kernels", help="leave one away"))
    if override is not None and loaded.topology.backend == "cpu":
        message = f"--override: {name} runs on the CPU and has no kernels to replace"
        raise BundleError(Problem("B033", message, help="leave --override away"))
    if to == "bundle" and out is None:
        out = Path("generated") / name
    if out is not None:
        bundle.refuse_foreign(out)
    files, edited = _build(loaded, to, override, progress)
    if out is None:
        return Compiled(name, files)
    manifest = manifest_of(loaded, files, edited)
    written = bundle.write_bundle(out, files, manifest) if to == "bundle" else bundle.write_stage(out, files, manifest)
    return Compiled(name, files, written)


def manifest_of(loaded: LoadedEngine, files: dict[str, bytes], edited: tuple[str, ...] = ()) -> Manifest:
    """The manifest of these files."""
    return bundle.make_manifest(
        files,
        engine=loaded.engine.name,
        tool=__version__,
        backend=loaded.topology.backend,
        topology=loaded.topology.name,
        spec=canonical_json(loaded.resolved()),
        overrides=loaded.overrides,
        edited=edited,
    )


def shared_limit(loaded: LoadedEngine) -> int:
    """Bytes of shared memory that the device gives a block."""
    return parse_bytes(loaded.topology.device.shared_memory or "0B")


def pretty_json(data: object) -> bytes:
    """Plain data as stable, indented JSON ending with a newline."""
    return bundle.indented(canonical_json(data))


def stage(name: str) -> Stage:
    """The stage of this name. Raises ValueError for another word."""
    for known in STAGES:
        if known == name:
            return known
    raise ValueError(f"'{name}' is no stage")


def stage_text(done: Compiled, to: Stage) -> str:
    """What a stage adds, as one text: the resolved spec, the graphs, the plan, or the sources."""
    chosen = {path: data.decode() for path, data in sorted(done.files.items()) if _is_of(path, to)}
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    return "".join(f"==> {path}\n{data}\n" for path, data in chosen.items())


def _is_of(path: str, to: Stage) -> bool:
    prefixes = {"spec": ("spec.json",), "graph": ("graph/",), "plan": ("plan.txt",), "src": (STEP, "src/")}
    return path.startswith(prefixes.get(to, ("",)))
