"""`run` and `trace` with a bundle for a GPU, whole commands on the emulator: text, rounds and ends as on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from ddtreec.cli.main import main
from ddtreec.cli.run import Shown
from ddtreec_runtime.backends.cuda import engine as cuda_engine
from ddtreec_runtime.backends.cuda.engine import CudaEngine
from tests.cuda_host.emulated import PAIR, emulated
from tests.cuda_host.test_commands import cpu_bundle, gpu_bundle  # noqa: F401  fixtures
from tests.emulated.emulator import missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "here"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
]

TEXT = "def add(a, b):\n    return a"
WEIGHTS = ("--weights", str(PAIR / "target"), "--drafter-weights", str(PAIR / "drafter"))
ASKED = (*WEIGHTS, "--prompt", TEXT, "--max-new-tokens", "12")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CudaEngine]]:
    """Engines that commands made, in order; a GPU seems to be here and is the emulator."""
    engines: list[CudaEngine] = []

    def load(bundle: Any, checkpoints: Any, needed: Any, tokenizer: Any, drafting: bool, progress: Any) -> CudaEngine:
        engines.append(emulated(drafter=PAIR / "drafter" if drafting else None))
        return engines[-1]

    monkeypatch.setattr(cuda_engine, "load", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    yield engines
    assert all(engine._machine is None for engine in engines), "every command closes its engine"


def ddtreec(verb: str, bundle: Path, *args: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, [verb, str(bundle), *args])
    assert done.exit_code == code, done.output
    return done


def test_run_and_its_trees(made: list[CudaEngine], gpu_bundle: Path, cpu_bundle: Path) -> None:  # noqa: F811
    for options in ((), ("--speculation", "chain"), ("--budget", "3", "--stop", "(")):
        got, want = (ddtreec("run", bundle, *ASKED, *options) for bundle in (gpu_bundle, cpu_bundle))
        assert got.stdout == want.stdout and len(got.stdout) > 5
        assert "tau " in got.stderr and "tokens/s" in got.stderr
    shown = ddtreec("run", gpu_bundle, *ASKED, "--show-tree", "--json")
    answer = json.loads(shown.stdout)
    assert answer["finish_reason"] == "length" and len(answer["output_ids"]) == 12
    assert shown.stderr.count("round ") >= answer["rounds"] > 1
    drawn = ddtreec("run", gpu_bundle, *ASKED, "--temperature", "0.9", "--top-k", "40", "--seed", "3", "--json")
    assert json.loads(drawn.stdout)["output_ids"] != answer["output_ids"]


def test_run_without_drafter(made: list[CudaEngine], gpu_bundle: Path) -> None:  # noqa: F811
    done = ddtreec("run", gpu_bundle, *WEIGHTS[:2], "--prompt", TEXT, "--max-new-tokens", "4")
    assert "--drafter-weights is not given: speculation is off" in done.stderr


def test_trace(made: list[CudaEngine], gpu_bundle: Path, cpu_bundle: Path, tmp_path: Path) -> None:  # noqa: F811
    found: list[dict[str, Any]] = []
    for name, bundle in (("gpu", gpu_bundle), ("cpu", cpu_bundle)):
        file = tmp_path / f"{name}.json"
        ddtreec("trace", bundle, *ASKED, "-o", str(file))
        found.append(json.loads(file.read_text()))
    got, want = found
    assert got.keys() == want.keys() and len(got["rounds"]) > 1
    assert got["rounds"][0].keys() == want["rounds"][0].keys()


def test_ctrl_c_leaves_at_once_and_frees_the_device(
    made: list[CudaEngine],
    gpu_bundle: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, heard = Shown.take, list[int]()

    def interrupted(self: Shown, ids: list[int], text: str) -> None:
        take(self, ids, text)
        heard.append(len(ids))
        if len(heard) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Shown, "take", interrupted)
    done = ddtreec("run", gpu_bundle, *ASKED, code=130)
    assert len(heard) == 2 and f"interrupted after {sum(heard)} tokens" in done.stderr
    assert len(done.stdout) > 1


def test_an_engine_works_on_after_ctrl_c() -> None:
    engine = emulated()
    assert engine.tokenizer is not None
    prompt = engine.tokenizer.encode(TEXT)

    def interrupt(ids: list[int], text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompt, 12, on_tokens=interrupt)
    again = engine.generate(prompt, 12)
    assert again.output_ids == emulated().generate(prompt, 12).output_ids


def test_a_dtype_that_a_gpu_has_not(made: list[CudaEngine], gpu_bundle: Path) -> None:  # noqa: F811
    done = ddtreec("run", gpu_bundle, *ASKED, "--dtype", "float32", code=2)
    assert "R009" in done.stderr and "this bundle runs in bfloat16 alone, not in 'float32'" in done.stderr
