"""Faults of `ddtreec run`: one clear message with what, where and a way out, a stable exit code, no traceback."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from ddtreec.cli.main import main
from ddtreec.cli.prompts import read_prompts
from ddtreec.driver import compile_engine
from ddtreec_runtime import Engine
from tests.runtime.engines import K26, bundle, random_drafter

A = K26 / "a-flat-8e"
IDS = ("--prompt-ids", "5,6,7", "--max-new-tokens", "4")


def ddtreec(*args: object) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, args)], catch_exceptions=False)


def refused(result: Result, code: str, exit_code: int, *parts: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith(f"error[{code}]: "), result.stderr
    assert result.stderr.count("error[") == 1
    assert "  help: " in result.stderr
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr, result.stderr
    assert result.stdout == ""


@pytest.fixture(scope="module")
def made() -> Path:
    return bundle(A)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A bundle to break."""
    shutil.copytree(made, tmp_path / "bundle")
    return tmp_path / "bundle"


def reseal(folder: Path) -> None:
    """Writes the manifest anew, as if the compiler had written these files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("args", "code", "exit_code", "parts"),
    [
        ((), "R020", 2, ("there is no prompt", "--prompt-ids")),
        (("--prompt", "a", "--prompt-ids", "1"), "R020", 2, ("--prompt and --prompt-ids are given together",)),
        (("--prompt-ids", ""), "R001", 2, ("the prompt is empty",)),
        (("--prompt-ids", "5,x"), "R003", 2, ("'x' is no token id",)),
        (("--prompt-ids", "--5"), "R003", 2, ("'--5' is no token id",)),
        (("--prompt-ids", "9" * 5000), "R003", 2, ("is no token id",)),
        (("--prompt-ids", "5,512"), "R003", 2, ("id 512 at place 1 is outside the vocabulary of 512",)),
        (("--prompt-ids", "5,-1"), "R003", 2, ("id -1 at place 1",)),
        (("--prompt-ids", ",".join(["7"] * 4096)), "R002", 2, ("has 4096 tokens", "context of this engine is 4096")),
        (("--prompt", "text"), "R021", 4, ("no tokenizer.json", "--prompt-ids")),
        ((*IDS, "--stop", "END"), "R007", 2, ("stop strings need a tokenizer",)),
        ((*IDS, "--stop", ""), "R102", 2, ("a stop string is empty",)),
        ((*IDS, "--speculation", "tree"), "R005", 2, ("compiled without a drafter",)),
        ((*IDS, "--speculation", "chain"), "R005", 2, ("compiled without a drafter",)),
        ((*IDS, "--drafter-weights", str(A)), "R005", 2, ("compiled without a drafter",)),
        ((*IDS, "--budget", "-1"), "R004", 2, ("budget is -1",)),
        ((*IDS, "--budget", "999"), "R004", 2, ("budget 999 is more than",)),
        ((*IDS, "--temperature", "-1"), "R011", 2, ("temperature is -1.0",)),
        ((*IDS, "--temperature", "nan"), "R011", 2, ("temperature is nan",)),
        ((*IDS, "--top-p", "0"), "R012", 2, ("top_p is 0.0",)),
        ((*IDS, "--top-k", "-3"), "R013", 2, ("top_k is -3",)),
        ((*IDS, "--seed", "-1"), "R014", 2, ("seed is -1",)),
    ],
)
def test_requests(made: Path, args: tuple[str, ...], code: str, exit_code: int, parts: tuple[str, ...]) -> None:
    refused(ddtreec(made, "--weights", A, *args), code, exit_code, *parts)


@pytest.mark.parametrize(
    ("content", "line", "part"),
    [
        (b"", 0, "there is no prompt in this file"),
        (b'{"prompt_ids": [1]}\n{"prompt":\n', 2, "no JSON"),
        (b'{"text": "a"}\n', 1, "this line is no prompt"),
        (b'{"prompt": "a", "prompt_ids": [1]}\n', 1, "this line is no prompt"),
        (b'{"prompt_ids": [1.5]}\n', 1, "this line is no prompt"),
        (b"\xff\n", 0, "not UTF-8 at byte 0"),
    ],
)
def test_prompt_files(made: Path, tmp_path: Path, content: bytes, line: int, part: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    refused(ddtreec(made, "--weights", A, "--prompts", path), "R022", 2, part, f"{path}:{line}" if line else str(path))
    refused(ddtreec(made, "--weights", A, "--prompts", tmp_path / "none"), "R022", 2, "cannot read the prompt")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"prompt_ids": []}', "R001"),
        (json.dumps({"prompt_ids": [7] * 4096}), "R002"),
        ('{"prompt_ids": [512]}', "R003"),
    ],
)
def test_all_prompts_are_judged_before_the_first_is_answered(made: Path, tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt_ids": [5, 6]}\n\n' + line + "\n")
    refused(ddtreec(made, "--weights", A, "--prompts", path), code, 2, f"{path}:3")


def test_no_bundle(made: Path, tmp_path: Path) -> None:
    refused(ddtreec(tmp_path / "none", "--weights", A, *IDS), "B020", 5, "no such bundle", "ddtreec compile")
    refused(ddtreec(A, "--weights", A, *IDS), "B020", 5, "this is a checkpoint")
    refused(ddtreec(tmp_path, "--weights", A, *IDS), "B020", 5, "no manifest.json")
    (tmp_path / "stage.json").write_text("{}")
    refused(ddtreec(tmp_path, "--weights", A, *IDS), "B020", 5, "an early stage of a compile", "without --to")
    refused(ddtreec(made.parent / "spec", "--weights", A, *IDS), "B020", 5, "holds specs")
    refused(ddtreec(made.parent / "spec" / "engine.yaml", "--weights", A, *IDS), "B020", 5, "this is a file")


@pytest.mark.parametrize("name", ["plan.json", "step.py", "spec.json", "graph/01-expand.txt"])
def test_bundle_edited_by_hand(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write("\n# just a comment\n")
    refused(ddtreec(copy, "--weights", A, *IDS), "B024", 5, "changed", str(copy / name), "compile the engine again")


def test_edited_code_never_runs(copy: Path, tmp_path: Path) -> None:
    (copy / "step.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\n")
    refused(ddtreec(copy, "--weights", A, *IDS), "B024", 5)
    assert not (tmp_path / "ran").exists()


def test_bundle_damaged(copy: Path) -> None:
    (copy / "step.py").unlink()
    refused(ddtreec(copy, "--weights", A, *IDS), "B023", 5, "missing", "step.py")
    (copy / "manifest.json").write_text("{")
    refused(ddtreec(copy, "--weights", A, *IDS), "B021", 5, "unreadable manifest")


@pytest.mark.parametrize(("number", "way"), [(99, "install a newer ddtreec"), (0, "compile the engine again")])
def test_bundle_of_another_version(copy: Path, number: int, way: str) -> None:
    edit(copy / "manifest.json", format=number, something_new=True)
    refused(ddtreec(copy, "--weights", A, *IDS), "B022", 5, f"format {number}", "format 1", way)


def test_plan_of_another_version(copy: Path) -> None:
    edit(copy / "plan.json", format=7)
    reseal(copy)
    refused(ddtreec(copy, "--weights", A, *IDS), "B022", 5, "the plan has format 7", "reads format 1")
    edit(copy / "plan.json", format=1, colour="red")
    reseal(copy)
    refused(ddtreec(copy, "--weights", A, *IDS), "B025", 5, "unreadable plan", "colour")


def test_bundle_for_a_gpu(copy: Path) -> None:
    edit(copy / "plan.json", backend="cuda", topology="h200-x1")
    reseal(copy)
    refused(ddtreec(copy, "--weights", A, *IDS), "B027", 5, "for cuda (h200-x1)", "compile the engine for the CPU")


def test_program_missing(copy: Path) -> None:
    (copy / "step.py").write_text("pass\n")
    reseal(copy)
    refused(ddtreec(copy, "--weights", A, *IDS), "B026", 5, "no program 'target'")


def test_wrong_weights(made: Path, tmp_path: Path) -> None:
    result = ddtreec(made, "--weights", tmp_path, *IDS)
    assert result.exit_code == 4
    assert result.stderr.startswith("error[K")
    result = ddtreec(made, "--weights", K26 / "b-real-heads", *IDS)
    assert result.exit_code == 4
    assert "error[K02" in result.stderr


def test_a_broken_tokenizer_is_said_before_the_weights_load(made: Path, tmp_path: Path) -> None:
    shutil.copytree(A, tmp_path / "a")
    (tmp_path / "a" / "tokenizer.json").write_text("{}")
    refused(ddtreec(made, "--weights", tmp_path / "a", *IDS, "--progress", "plain"), "K040", 4, "not a tokenizer")


def test_drafter_planned_but_not_given() -> None:
    with_drafter = bundle(A, "cpu", random_drafter(128, 3, 512, 511))
    refused(ddtreec(with_drafter, "--weights", A, *IDS, "--speculation", "tree"), "R005", 2, "--drafter-weights")
    result = ddtreec(with_drafter, "--weights", A, *IDS)
    assert result.exit_code == 0
    assert result.stdout.count(",") == 3


def test_weights_that_are_not_numbers(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(A, folder)
    shard = next(p for p in sorted(folder.glob("*.safetensors")) if "model.norm.weight" in load_file(p))
    tensors = load_file(shard)
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, shard)
    refused(ddtreec(made, "--weights", folder, *IDS), "R015", 4, "the target's logits has nan")


def test_tensors_that_nothing_reads_are_named(made: Path, tmp_path: Path) -> None:
    """A checkpoint of a model that has more than the spec says would else run, and be wrong, without a word."""
    folder = tmp_path / "more"
    shutil.copytree(A, folder)
    (folder / "model.safetensors.index.json").unlink()
    extra = {f"model.layers.{n}.self_attn.k_extra.weight": torch.zeros(3) for n in (1, 2)}
    shard = sorted(folder.glob("model-*.safetensors"))[0]
    save_file(load_file(shard) | extra, shard)
    result = ddtreec(made, "--weights", folder, *IDS)
    assert result.exit_code == 0
    assert (
        "warning: layers 1..2: 'model.layers.{layer}.self_attn.k_extra.weight' is not used by the engine"
        in result.stderr
    )
    assert "warning" not in ddtreec(made, "--weights", A, *IDS).stderr


def test_interrupt_keeps_what_is_there(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Engine.generate

    def interrupted(self: Engine, prompt: list[int], on_tokens: Any, **options: Any) -> Any:
        seen = 0

        def take(ids: list[int], text: str) -> None:
            nonlocal seen
            on_tokens(ids, text)
            seen += len(ids)
            if seen == 3:
                raise KeyboardInterrupt

        return real(self, prompt, on_tokens=take, **options)

    whole = ddtreec(made, "--weights", A, "--prompt-ids", "5,6,7", "--max-new-tokens", 8).stdout.strip().split(",")
    monkeypatch.setattr(Engine, "generate", interrupted)
    result = ddtreec(made, "--weights", A, "--prompt-ids", "5,6,7", "--max-new-tokens", 8)
    assert result.exit_code == 130
    assert result.stdout.strip().split(",") == whole[:3]
    assert "interrupted after 3 tokens" in result.stderr
    result = ddtreec(made, "--weights", A, "--prompt-ids", "5,6,7", "--max-new-tokens", 8, "--json")
    assert result.exit_code == 130
    told = json.loads(result.stdout)
    assert told["output_ids"] == [int(token) for token in whole[:3]]
    assert told["finish_reason"] == "interrupted"


def test_reader_that_goes_away(made: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}:{root / 'runtime'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ddtreec.cli.main", "run", str(made), "--weights", str(A), "--prompt-ids", "5,6"]
    process = subprocess.Popen(
        [*command, "--max-new-tokens", "400"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    )
    assert process.stdout is not None
    process.stdout.read(5)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(60) == 0
    assert "Traceback" not in errors
    assert "Error" not in errors


def test_json_objects(made: Path, tmp_path: Path) -> None:
    """What is right: one object a prompt, with the promised keys and nothing else on stdout."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt_ids": [5, 6, 7]}\n\n{"prompt_ids": [9]}\n')
    result = ddtreec(made, "--weights", A, "--prompts", path, "--max-new-tokens", 5, "--json", "--progress", "plain")
    assert result.exit_code == 0
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["prompt_ids"] for one in told] == [[5, 6, 7], [9]]
    for one in told:
        assert set(one) == {
            "prompt_ids", "output_ids", "text", "finish_reason", "rounds", "tau", "accepted_per_round", "prefill_s",
            "decode_s", "tokens_per_s",
        }  # fmt: skip
        assert one["text"] is None
        assert (len(one["output_ids"]), one["finish_reason"]) in {(5, "length"), (len(one["output_ids"]), "stop")}
    assert "loading: 100 % of" in result.stderr


def test_separators_inside_a_json_string_are_no_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes('{"prompt": "a\u2028b"}\r\n"c\x85d"\n'.encode())
    assert [one.text for one in read_prompts(None, None, None, path)] == ["a\u2028b", "c\x85d"]


def test_a_forgotten_drafter_is_said_and_a_budget_without_one_refused(tmp_path: Path) -> None:
    """The shipped pair without its drafter: a note on stderr, or R005 where a tree is asked for."""
    pair = Path(__file__).resolve().parents[2] / "models" / "tiny-pair" / "target"
    compile_engine("tiny-k2-cpu", out=tmp_path / "b")
    command = (tmp_path / "b", "--weights", pair, "--prompt", "def f(x):", "--max-new-tokens", 2)
    quiet = ddtreec(*command)
    assert quiet.exit_code == 0 and "speculation is off" in quiet.stderr
    refused(ddtreec(*command, "--budget", 4), "R005", 2, "no drafter is loaded", "--drafter-weights")
    refused(ddtreec(tmp_path / "x", "--prompt", "a"), "B020", 5, "there is no such bundle", "ddtreec compile")
