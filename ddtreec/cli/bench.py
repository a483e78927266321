"""`ddtreec bench`: what drafts bring on held-out prompts. Tables to stdout, numbers to a file, progress to stderr."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from ddtreec import __version__
from ddtreec.cli import generating
from ddtreec.cli.colour import paint
from ddtreec.cli.common import guarded
from ddtreec.cli.output import schema_json
from ddtreec.cli.progress import Style, reporting
from ddtreec.cli.progress import option as progress_option
from ddtreec.cli.prompts import read_prompts
from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.core.paths import data_folder

BUDGETS = (4, 8, 16, 32, 64)
CONTEXT = 8192
"""Tokens before the rows that --synthetic times, where the bundle has room for them."""


@click.command("bench", short_help="Measure acceptance, speed and expert overlap on held-out prompts.")
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--weights", type=click.Path(path_type=Path), help="Checkpoint of the target; needed with BUNDLE.")
@click.option("--drafter-weights", type=click.Path(path_type=Path), help="Checkpoint directory of the DFlash drafter.")
@click.option("--tau", is_flag=True, help="Measure tau: tokens committed per round, with all that explains it.")
@click.option(
    "--prompts", type=click.Path(path_type=Path), help="Held-out prompts, one JSON a line, as `ddtreec run` reads them."
)
@click.option("--limit", type=click.IntRange(min=1), help="Take the first N prompts alone.")
@click.option("--max-new-tokens", type=click.IntRange(min=2), default=128, show_default=True)
@click.option(
    "--budgets",
    metavar="4,8,16",
    help="Tree nodes besides the root.  [default: of 4,8,16,32,64 those the bundle takes]",
)
@click.option("--temperatures", metavar="0,0.8", default="0,0.8", show_default=True, help="0 is greedy.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Prompt i draws with seed + i.")
@click.option(
    "--speed-prompts", type=click.IntRange(min=0), default=8, show_default=True, help="Prompts decoded for tokens/s."
)
@click.option(
    "--expert-prompts",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Prompts decoded to count experts.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the texts."
)
@click.option("--synthetic", is_flag=True, help="On a GPU: time the kernels of one rank on random weights.")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="The rank that is timed.")
@click.option("--rows", metavar="1,8,16", default="1,8,16", show_default=True, help="Rows of the steps that are timed.")
@click.option(
    "--context",
    type=click.IntRange(min=0),
    help="Tokens before these rows.  [default: 8192, or what the bundle has room for]",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: what its matrices are worth]")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float64"]), help="[default: what the bundle says]")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all numbers to this file.")
@click.option("--plot", multiple=True, type=click.Path(path_type=Path), help="Draw to this .png or .svg; repeatable.")
@progress_option
@guarded
def bench(
    bundle: Path | None,
    weights: Path | None,
    drafter_weights: Path | None,
    tau: bool,
    prompts: Path | None,
    limit: int | None,
    max_new_tokens: int,
    budgets: str | None,
    temperatures: str,
    seed: int,
    speed_prompts: int,
    expert_prompts: int,
    jobs: int,
    synthetic: bool,
    rank: int,
    rows: str,
    context: int | None,
    threads: int | None,
    dtype: str | None,
    json_file: Path | None,
    plot: tuple[Path, ...],
    progress: Style,
) -> None:
    """Measure BUNDLE on held-out prompts: without drafts, with a chain, and with trees of several budgets.

    Tau and acceptance by depth and rank come from every prompt: each is decoded once without drafts, and the rounds
    of all budgets are told from that text. Tokens/s and the experts that a verify step touches come from whole
    generations of the first few prompts, whose rounds are compared with those told. One sequence runs at a time.
    Without BUNDLE the small trained pair that ships with ddtreec is measured on its own held-out prompts.

    With --synthetic no checkpoint is read: the step programs of one rank run on random weights, as graphs and with
    collectives left out, and the time of each step and kernel is printed.

    \b
    Examples:
      ddtreec bench --tau --limit 16
      ddtreec bench demo/pair --weights pair/target --drafter-weights pair/drafter --tau --prompts heldout.jsonl
      ddtreec bench demo/pair --weights pair/target --drafter-weights pair/drafter --tau --prompts heldout.jsonl \\
        --budgets 4,8,16 --temperatures 0 --json tau.json --plot tau.png --plot tau.svg
      ddtreec bench demo/k26 --synthetic --rank 0 --rows 1,8,16 --context 8192 --json rank.json
    """
    if synthetic:
        drafts = {"--tau": tau, "--weights": weights, "--drafter-weights": drafter_weights, "--prompts": prompts}
        if unread := [option for option, value in {**drafts, "--dtype": dtype, "--plot": plot}.items() if value]:
            message = f"--synthetic times kernels on random weights: it takes no {unread[0]}"
            raise SpecError(Problem("M001", message, help=f"leave {unread[0]} away, or --synthetic"))
        _room_for(json_file)
        _time_rank(bundle, rank, whole_numbers(rows, "--rows"), context, json_file, progress)
        return
    if not tau:
        raise SpecError(Problem("M001", "there is nothing to measure", help="give --tau, or --synthetic on a GPU"))
    wanted, heats = whole_numbers(budgets), temperatures_of(temperatures)
    _room_for(json_file)
    asked = read_prompts(None, None, None, _prompts(bundle, prompts))[:limit]

    from ddtreec_runtime.bench import plot as drawing
    from ddtreec_runtime.bench.measure import Settings, Source, measure
    from ddtreec_runtime.bench.record import stamp
    from ddtreec_runtime.bench.report import encode
    from ddtreec_runtime.bench.table import notes, tables
    from ddtreec_runtime.engine import Engine

    drawing.refuse_early(plot)
    with generating.source(bundle, weights, drafter_weights) as given:
        with reporting(progress, "loading") as report:
            engine = Engine.load(
                given.bundle, given.weights, given.drafter, dtype=dtype, threads=threads, progress=report
            )
        with engine:
            source = Source(given.bundle, given.weights, given.drafter, dtype, threads)
            ids = [one.encode(engine.tokenizer, given.weights) for one in asked]
            room = engine.plan.tree.budget
            fitting = wanted or tuple(budget for budget in BUDGETS if budget <= room) or (room,)
            settings = Settings(max_new_tokens, fitting, heats, seed, speed_prompts, expert_prompts, jobs)
            found = measure(engine, source, ids, settings, stamp(_command(), __version__), _steps(progress))
    click.echo("\n\n".join(table.plain() for table in tables(found)))
    click.echo("\n" + "\n".join(notes(found)))
    if json_file is not None:
        _write(json_file, encode(found))
    for path in plot:
        drawing.write(found, path)
        click.echo(f"wrote {path}", err=True)


def _time_rank(
    bundle: Path | None, rank: int, rows: tuple[int, ...], context: int | None, json_file: Path | None, progress: Style
) -> None:
    """The kernels of one rank on random weights. Raises SpecError M001 without a bundle."""
    if bundle is None:
        raise SpecError(Problem("M001", "--synthetic needs a bundle to time", help="name one: ddtreec bench BUNDLE"))

    from ddtreec_runtime.bench.record import stamp
    from ddtreec_runtime.bundle import open_bundle
    from ddtreec_runtime.checks import backend

    opened = open_bundle(bundle)
    backend(opened, "cuda")  # before the GPU's half of the runtime is imported

    from ddtreec_runtime.backends.cuda.rank_bench import lines, measure_rank, room, warnings

    if context is None:
        context = min(CONTEXT, room(opened.plan))
    with reporting(progress, "making weights") as report:
        found = measure_rank(bundle, rank, rows, context, progress=report)
    click.echo("\n".join(lines(found)))
    for line in warnings(found):
        click.echo(paint(f"warning: {line}", sys.stderr), err=True)
    if json_file is not None:
        made = stamp(_command(), __version__)
        text = schema_json("bench-rank", {"stamp": msgspec.to_builtins(made), **found})
        _write(json_file, text.encode())


def whole_numbers(text: str | None, option: str = "--budgets") -> tuple[int, ...]:
    """'4,8' to numbers, nothing to (). Raises SpecError M002."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        message = f"{option} {text!r} is no list of whole numbers above 0"
        raise SpecError(Problem("M002", message, help=f"give them with commas: {option} 4,8,16"))
    found = tuple(map(int, parts))
    if len(set(found)) < len(found):
        raise SpecError(Problem("M002", f"{option} {text!r} names a number twice", help="give each once"))
    return found


def temperatures_of(text: str) -> tuple[float, ...]:
    """'0,0.8' to temperatures. Raises SpecError M003."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= heat < float("inf") for heat in found) or len(set(found)) < len(found):
        message = f"--temperatures {text!r} is no list of different numbers, 0 or above"
        raise SpecError(Problem("M003", message, help="give them with commas: --temperatures 0,0.8"))
    return found


def _prompts(bundle: Path | None, prompts: Path | None) -> Path | None:
    """The file of prompts: the one named, or that of the shipped pair where no bundle is."""
    if prompts is None and bundle is None:
        shipped = data_folder("models") / generating.PAIR / "heldout.jsonl"
        return shipped if shipped.exists() else None
    return prompts


def _room_for(path: Path | None) -> None:
    """Says before the measurement, not after, that its file cannot be written. Raises SpecError M004."""
    if path is not None and not path.absolute().parent.is_dir():
        raise SpecError(Problem("M004", "there is no such folder", Loc(str(path)), help="make the folder first"))
    if path is not None and path.is_dir():
        raise SpecError(Problem("M004", "this is a folder, not a file", Loc(str(path)), help="name a file in it"))


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        message = f"cannot write the measurement: {error.strerror or error}"
        raise SpecError(Problem("M004", message, Loc(str(path)), help="name another file")) from None
    click.echo(f"wrote {path}", err=True)


def _command() -> str:
    """The command line as it was given."""
    return shlex.join(["ddtreec", *sys.argv[1:]])


def _steps(style: Style) -> Callable[[int, int, str], None] | None:
    """A line on stderr at every tenth of each part; nothing where nobody looks."""
    if style == "none" or (style == "auto" and not sys.stderr.isatty()):
        return None
    last: dict[str, int] = {}

    def told(done: int, total: int, what: str) -> None:
        tenth = 10 * done // total
        if last.get(what) != tenth:
            last[what] = tenth
            click.echo(f"{what}: {done} of {total}", err=True)

    return told


__all__ = ["bench"]
