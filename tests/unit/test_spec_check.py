"""`ddtreec check` and the command around it: one line, JSON, exit codes, and nothing heavy imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddtreec import __version__
from ddtreec.cli.main import COMMANDS, main
from ddtreec.spec.find import shipped

ROOT = Path(__file__).resolve().parents[2]
K26 = "kimi-k2.6-rtx-pro-6000-x8-pcie"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("name", shipped("engine"))
def test_every_shipped_engine_is_ok(name: str) -> None:
    result = _run("check", name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"ok: {name}: ")
    assert result.stdout.count("\n") == 1


def test_json_says_what_was_checked() -> None:
    result = _run("check", "tiny-k2-cpu", "--json", "--set", "tree=ddtree-8", "--set", "model.dims.spare=1")
    data = json.loads(result.stdout)
    assert (data["schema"], data["ok"], data["tree"], data["devices"]) == ("ddtreec.check/1", True, "ddtree-8", 1)
    assert [w["code"] for w in data["warnings"]] == ["S032"]


def test_json_of_a_mistake_has_its_place() -> None:
    result = _run("check", "tiny-k2-cpu", "--json", "--set", "tree.budgt=8")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["ok"]) == (2, False)
    problem = data["problems"][0]
    assert (problem["code"], problem["file"], problem["help"]) == (
        "S010",
        "--set tree.budgt=8",
        "did you mean `budget`?",
    )


def test_a_warning_is_on_stderr_and_stops_nothing() -> None:
    result = _run("check", "tiny-k2-cpu", "--set", "model.dims.spare=1")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning[S032]: `dims.spare` is not used")
    assert result.stdout.startswith("ok: ")


def test_a_mistake_is_on_stderr_with_its_code() -> None:
    result = _run("check", "tiny-k2-cpu", "--set", "limits.context=4096")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error[S037]: a context of 4096 tokens, but tiny-k2 was made for 1024")


def test_a_folder_names_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("kind: engine\n")
    result = _run("check", str(tmp_path))
    assert result.exit_code == 2
    assert "engine.yaml" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chek"], "Did you mean check?"),
        (["frobnicate"], "Commands: init, check"),
        (["check"], "Missing argument 'ENGINE'"),
        (["check", "tiny-k2-cpu", "--sett", "a=b"], "--set"),
        (["check", "tiny-k2-cp"], "did you mean `tiny-k2-cpu`?"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = _run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_help_and_version() -> None:
    result = _run("--help")
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in result.stdout
        assert line.split(",")[0][:40] in result.stdout
    assert __version__ in _run("--version").stdout


def _modules(*arguments: str) -> set[str]:
    """The modules a fresh interpreter has loaded after the command."""
    code = (
        "import sys\nfrom ddtreec.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, check=True
    )
    line = next(line for line in done.stderr.splitlines() if line.startswith("MODULES"))
    return set(line.split()[1:])


def test_help_imports_no_command() -> None:
    loaded = _modules("--help")
    assert not loaded & {"pydantic", "yaml", "networkx", "torch", "numpy", "ddtreec.driver", "ddtreec.cli.check"}


def test_check_imports_neither_torch_nor_numpy() -> None:
    loaded = _modules("check", K26)
    assert "ddtreec.driver" in loaded
    assert not loaded & {"torch", "numpy", "ddtreec_runtime"}


def test_a_wrong_spec_does_not_pay_for_the_graph() -> None:
    assert not _modules("check", "tiny-k2-cpu", "--set", "tree.budgt=1") & {"networkx", "ddtreec.driver"}
