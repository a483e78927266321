"""Manners of the command line: colour, --debug, exit codes, --json of every verb, completion, progress, help."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from ddtreec import __version__, driver
from ddtreec.cli import colour, progress
from ddtreec.cli.common import guarded
from ddtreec.cli.main import COMMANDS, main
from ddtreec.core.errors import BundleError, CheckpointError, FitError, Loc, Problem, SpecError, VerifyError

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = Problem("S003", "wrong", Loc("a.yaml", 12, 3), "  x: y", "a note", "a way out")
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'runtime'}", "TERM": "xterm"}


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args, prog_name="ddtreec")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# ---- colour ----


def test_colour_changes_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    painted = colour.paint(PROBLEM.render(), Terminal())
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == PROBLEM.render()
    lines = painted.split("\n")
    assert lines[0] == "\x1b[1;31merror[S003]\x1b[0m: wrong"
    assert all("\x1b[" in line for line in lines), painted
    assert "\x1b[1;36m  note:\x1b[0m a note" in lines and "\x1b[1;32m  help:\x1b[0m a way out" in lines
    assert any(line.endswith("\x1b[1;31m  ^\x1b[0m") for line in lines)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert colour.paint(PROBLEM.render(), Terminal()) == PROBLEM.render()


def test_no_colour_in_a_pipe_and_colour_on_a_terminal() -> None:
    command = [sys.executable, "-m", "ddtreec.cli.main", "check", "no-such-engine"]
    env = {key: value for key, value in ENV.items() if key != "NO_COLOR"}
    piped = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (piped.returncode, "\x1b" in piped.stderr) == (2, False)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"help:" not in shown:
        shown += os.read(ours, 1000)
    assert process.wait(timeout=60) == 2
    os.close(ours)
    assert b"\x1b[1;31merror[S020]\x1b[0m" in shown


# ---- exit codes and --debug ----


def ends(error: BaseException) -> click.Command:
    @click.command()
    @guarded
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SpecError(PROBLEM), 2, "error[S003]: wrong"),
        (FitError(PROBLEM), 3, "error[S003]: wrong"),
        (CheckpointError(PROBLEM), 4, "error[S003]: wrong"),
        (BundleError(PROBLEM), 5, "error[S003]: wrong"),
        (VerifyError("shard", "L00", "planted"), 70, "internal error[V001]"),
        (KeyError("x"), 70, "internal error[V002]: KeyError: 'x'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.UsageError("no"), 2, "Error: no"),
    ],
)
def test_exit_codes(error: BaseException, code: int, said: str) -> None:
    plain = CliRunner().invoke(ends(error))
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert said in plain.stderr and "Traceback" not in plain.stderr
    if not isinstance(error, click.UsageError):
        debugged = CliRunner().invoke(ends(error), ["--debug"])
        assert debugged.exit_code == code
        assert "Traceback" in debugged.stderr and debugged.stderr.endswith(plain.stderr)


def test_exit_codes_of_real_mistakes(tmp_path: Path) -> None:
    assert run("check").exit_code == 2
    assert run("check", "tiny-k2-cpu", "--set", "topology.device.memory=1MiB").exit_code == 3
    assert run("run", "nowhere", "--weights", "x", "--prompt-ids", "1").exit_code == 5
    assert run("doctor", "--weights", str(tmp_path / "none")).exit_code == 4


def test_debug_before_or_behind_the_verb() -> None:
    for args in (("--debug", "check", "nothing"), ("check", "nothing", "--debug")):
        assert "Traceback" in run(*args).stderr
    assert "Traceback" not in run("check", "nothing").stderr


def test_ctrl_c_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    result = run("check", "tiny-k2-cpu")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


# ---- version, help, json ----


def test_version() -> None:
    assert run("--version").stdout == f"ddtreec, version {__version__}\n"


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_has_an_example_of_the_verb(verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\n +ddtreec {verb}\b", result.stdout), result.stdout
    assert "--debug" in result.stdout


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "tiny"
    driver.compile_engine("tiny-k2-cpu", (), "bundle", out)
    return out


@pytest.mark.parametrize(
    "args",
    [
        "check tiny-k2-cpu", "check tiny-k2-cpu --set limits.context=-1", "plan tiny-k2-cpu", "graph tiny-k2-cpu",
        "compile tiny-k2-cpu --to plan", "compile tiny-k2-cpu -o OUT/bundle", "explain S010", "explain tree.budget",
        "show tiny-k2-cpu", "inspect BUNDLE", "diff tiny-k2-cpu tiny-k2-cpu-x2", "doctor", "doctor --bundle BUNDLE",
        "init CONFIGS/tiny-k2 -o OUT/specs",
    ],
)  # fmt: skip
def test_json_of_every_verb_names_its_schema(args: str, bundle: Path, tmp_path: Path) -> None:
    places = {"BUNDLE": bundle, "OUT": tmp_path, "CONFIGS": ROOT / "tests" / "data" / "configs"}
    words = [re.sub("BUNDLE|OUT|CONFIGS", lambda m: str(places[m[0]]), word) for word in args.split()]
    result = run(*words, "--json")
    data = json.loads(result.stdout)
    assert data["schema"] == f"ddtreec.{words[0]}/1", result.stderr
    assert next(iter(data)) == "schema"


def test_json_of_compile_and_init_says_what_was_made(tmp_path: Path) -> None:
    made = json.loads(run("compile", "tiny-k2-cpu", "-o", str(tmp_path / "b"), "--json").stdout)
    assert made["out"] == str(tmp_path / "b") and made["engine"] == "tiny-k2-cpu"
    assert {name: (tmp_path / "b" / name).stat().st_size for name in made["files"]} == made["files"]
    source = ROOT / "tests" / "data" / "configs" / "tiny-k2"
    written = json.loads(run("init", str(source), "-o", str(tmp_path / "s"), "--json").stdout)
    assert all(Path(path).is_file() for path in written["files"])
    assert written["next"][0] == f"ddtreec check {written['files'][0]}"
    assert run(*written["next"][0].split()[1:]).exit_code == 0


# ---- gcc ----


def test_gcc_lines_can_be_matched_and_lead_to_the_place(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("kind: engine\nversion: 1\nname: e\nextends: tiny-k2-cpu\nlimits: {context: -4}\ndtyp: x\n")
    result = run("check", str(path), "--format", "gcc")
    assert (result.exit_code, result.stderr) == (2, "")
    found = re.findall(r"^(.+):(\d+):(\d+): error: \[(S\d+)\] (.+)$", result.stdout, re.MULTILINE)
    assert [(f, int(line), int(col), code) for f, line, col, code, _ in found] == [
        (str(path), 5, 19, "S013"),
        (str(path), 6, 1, "S010"),
    ]


# ---- completion ----


def offered(*args: str) -> list[str]:
    *before, begun = args
    return [
        item.value for item in ShellComplete(main, {}, "ddtreec", "_DDTREEC_COMPLETE").get_completions(before, begun)
    ]


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (("che",), {"check"}),
        (("",), set(COMMANDS)),
        (("--ver",), {"--version"}),
        (("check", "tiny"), {"tiny-k2-cpu", "tiny-k2-cpu-x2", "tiny-k2-h200-x1"}),
        (("plan", "--js"), {"--json"}),
        (("check", "--format", ""), {"text", "json", "gcc"}),
        (("completion", "z"), {"zsh"}),
        (("check", "tiny-k2-cpu", "--set", "tree.b"), {"tree.budget="}),
        (("check", "tiny-k2-cpu", "--set", "limits."),
         {"limits.context=", "limits.sequences=", "limits.chunk=", "limits.page="}),
        (("compile", "tiny-k2-cpu", "--set", "model.dims.exp"), {"model.dims.experts=", "model.dims.expert_inter="}),
        (("check", "tiny-k2-cpu", "--set", "quant.roles.experts.g"), {"quant.roles.experts.group="}),
        (("check", "tiny-k2-cpu", "--set", "layout.vocab="),
         {"layout.vocab=auto", "layout.vocab=parallel", "layout.vocab=replicated"}),
        (("check", "tiny-k2-cpu", "--set", "tree.cost_aware="), {"tree.cost_aware=true", "tree.cost_aware=false"}),
        (("check", "tiny-k2-cpu", "--set", "tree=ddtree-1"), {"tree=ddtree-16"}),
        (("check", "no-engine", "--set", "tree.b"), {"tree.budget="}),
        (("nothing", "x"), set()),
    ],
)  # fmt: skip
def test_what_a_shell_offers(args: tuple[str, ...], want: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = set(offered(*args))
    assert want <= found if args in (("",), ("--ver",)) else want == found
    assert capsys.readouterr().err == ""


def test_every_path_that_is_offered_exists() -> None:
    """What stands before the `=` is known to the reader: a value of no type is refused for its type, not its path."""
    for path in sorted(
        offered("check", "tiny-k2-cpu", "--set", "limits.") + offered("check", "x", "--set", "topology.")
    ):
        result = run("check", "tiny-k2-cpu", "--set", f"{path}{{}}")
        assert "unknown key" not in result.stderr and "does not belong" not in result.stderr, path


def test_a_path_is_left_to_the_shell() -> None:
    completer = ShellComplete(main, {}, "ddtreec", "_DDTREEC_COMPLETE")
    assert [item.type for item in completer.get_completions(["check"], "./my")] == ["file"]


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef ddtreec"),
                                             ("fish", "complete --no-files --command ddtreec")])  # fmt: skip
def test_completion_scripts(shell: str, mark: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert mark in result.stdout
    assert ("compopt -o nospace" in result.stdout) == (shell == "bash")


def test_bash_completes(tmp_path: Path) -> None:
    """The script in a real bash, with `ddtreec` in PATH as an installed command would be."""
    command = tmp_path / "ddtreec"
    command.write_text(f"#!{sys.executable}\nfrom ddtreec.cli.main import main\nmain()\n")
    command.chmod(0o755)
    (tmp_path / "script").write_text(run("completion", "bash").stdout)
    lines = (
        f"source {tmp_path}/script; COMP_WORDS=(ddtreec check tiny); COMP_CWORD=2; "
        '_ddtreec_completion ddtreec 2>/dev/null; echo "${COMPREPLY[*]}"'
    )
    env = {**ENV, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", lines], env=env, capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.split()) == ["tiny-k2-cpu", "tiny-k2-cpu-x2", "tiny-k2-h200-x1"], done


# ---- progress ----


def lines_of(style: progress.Style, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with progress.reporting(style, "loading") as report:
        for done in range(1001):
            if report is not None:
                report(done * 1000, 1_000_000, "w")
    return capsys.readouterr().err.splitlines()


def test_progress_as_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of("plain", capsys)
    assert [line.partition(" %")[0] for line in lines] == [f"loading: {n}" for n in range(0, 101, 10)]


def test_progress_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[dict[str, Any]] = [json.loads(line) for line in lines_of("json", capsys)]
    assert len(told) == 11
    assert {one["schema"] for one in told} == {"ddtreec.progress/1"}
    assert [one["done"] for one in told] == [100_000 * n for n in range(11)]
    assert told[-1]["total"] == 1_000_000 and told[0]["left_s"] is None


def test_progress_of_other_things_than_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.reporting("plain", "compiling", unit="kernels") as report:
        assert report is not None
        for done in range(4):
            report(done, 3, "linear")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"compiling: {n} % of 3 kernels" for n in (0, 30, 60, 100)]


@pytest.mark.parametrize("style", ["none", "auto"])
def test_no_progress_where_nobody_looks(style: progress.Style, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(style, capsys) == []


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.reporting("auto", "loading") as report:
        assert report is not None
        report(5, 10, "w")
    assert "loading" in screen.getvalue()


# ---- streams that are not there ----


def ddtreec(shell: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command with redirections as a shell makes them."""
    command = f"{sys.executable} -m ddtreec.cli.main {shell}"
    return subprocess.run(["bash", "-c", command], env={**ENV, **env}, cwd=ROOT, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("check tiny-k2-cpu >&-", 0, b""),
        ("compile tiny-k2-cpu --to spec >&-", 0, b""),
        ("check none <&-", 2, b"error[S020]"),
        ("check none 2>&-", 2, b""),
        ("check none >&- 2>&- <&-", 2, b""),
        ("run none --weights none --prompt-file - <&-", 5, b"error[B020]"),
        ("check tiny-k2-cpu >/dev/full", 2, b"error[C001]: cannot write the output: No space left on device"),
        ("compile tiny-k2-cpu --to spec >/dev/full", 2, b"error[C001]"),
    ],
)
def test_closed_and_full_streams(shell: str, code: int, said: bytes) -> None:
    done = ddtreec(shell)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said) and bool(said) == bool(done.stderr), done.stderr
    assert done.stdout == b""


def test_text_is_utf_8_whatever_the_locale() -> None:
    """In code that writes what a model said: not each character has a place in an 8-bit code."""
    script = (
        "import click\nfrom ddtreec.cli.common import guarded\n"
        "@click.command()\n@guarded\ndef main(): print('\\u6765 \\U0001f600')\nmain()"
    )
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**ENV, "PYTHONIOENCODING": encoding}, capture_output=True, check=False
        )
        assert done.stdout.decode("utf-8") == "\u6765 \U0001f600\n", done.stderr
