"""Damaged specs: always a message or a sound engine, never a traceback, a hang, or an unknown key taken silently."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtreec import driver
from ddtreec.core.errors import DdtreecError, Problem
from ddtreec.spec.codes import TITLES
from ddtreec.spec.find import shipped
from ddtreec.spec.load import load_engine
from tests.properties.mutations import damaged_text, damaged_tree, strange_key

NAMES = {"model": "tiny-k2", "quant": "int4-g32-experts", "drafter": "tiny-dflash", "tree": "ddtree-16",
         "topology": "cpu-x2", "engine": "tiny-k2-cpu"}  # fmt: skip
KINDS = tuple(NAMES)


class Folder:
    """A sound engine as six files, of which one at a time is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts = {kind: shipped(kind)[name].read_text("utf-8") for kind, name in NAMES.items()}
        for kind in KINDS:
            if kind != "engine":
                line = next(x for x in self.texts["engine"].splitlines() if x.startswith(f"{kind}: "))
                self.texts["engine"] = self.texts["engine"].replace(line, f"{kind}: {kind}.yaml")
        self.trees: dict[str, dict[str, Any]] = {kind: yaml.safe_load(text) for kind, text in self.texts.items()}
        self.restore()

    def restore(self) -> None:
        for kind, text in self.texts.items():
            (self.path / f"{kind}.yaml").write_text(text, "utf-8")

    def check(self, kind: str, data: bytes) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
        """Errors and warnings of the engine with one file's content replaced."""
        (self.path / f"{kind}.yaml").write_bytes(data)
        try:
            loaded = load_engine(self.path / "engine.yaml")
            driver.check(loaded)
        except DdtreecError as error:
            for problem in error.problems:
                told(problem)
            assert error.problems
            return error.problems, ()
        finally:
            (self.path / f"{kind}.yaml").write_text(self.texts[kind], "utf-8")
        return (), loaded.warnings


def told(problem: Problem) -> None:
    """A message has a known code and words; its place is one of the text; it can be printed."""
    assert problem.code in TITLES or problem.code == "F001", problem
    assert problem.message and len(problem.message) < 9000
    assert "Traceback" not in problem.render()
    problem.render().encode("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("fuzz"))


def as_json(tree: Any) -> bytes:
    """JSON is YAML."""
    return json.dumps(tree, ensure_ascii=False).encode()


def fuzz(
    request: pytest.FixtureRequest, share: float, strategy: st.SearchStrategy[Any], body: Callable[..., None]
) -> None:
    """Runs `body` on a share of the asked number of mutations; each must end within ten seconds."""
    asked = request.config.getoption("--fuzz", default=None)
    given(strategy)(settings(
        max_examples=max(int((asked or 300) * share), 1), derandomize=asked is None, database=None,
        deadline=timedelta(seconds=10), suppress_health_check=list(HealthCheck),
    )(body))()  # fmt: skip


def test_the_engine_of_these_tests_is_sound(folder: Folder) -> None:
    for kind in KINDS:
        assert folder.check(kind, folder.texts[kind].encode()) == ((), ())
        assert folder.check(kind, as_json(folder.trees[kind])) == ((), ()), kind


def test_damaged_text(folder: Folder, request: pytest.FixtureRequest) -> None:
    damaged = st.sampled_from(KINDS).flatmap(lambda k: st.tuples(st.just(k), damaged_text(folder.texts[k])))
    fuzz(request, 0.4, damaged, lambda found: folder.check(*found) and None)


def test_damaged_trees(folder: Folder, request: pytest.FixtureRequest) -> None:
    damaged = st.sampled_from(KINDS).flatmap(lambda k: st.tuples(st.just(k), damaged_tree(folder.trees[k])))
    fuzz(request, 0.3, damaged, lambda found: folder.check(found[0], as_json(found[1])) and None)


def test_an_unknown_key_is_never_taken(folder: Folder, request: pytest.FixtureRequest) -> None:
    """Wherever a spec says which keys there are, another one is an error that names it or its place."""
    strange = st.sampled_from(KINDS).flatmap(lambda k: st.tuples(st.just(k), strange_key(folder.trees[k])))

    def body(found: tuple[str, tuple[Any, tuple[str | int, ...]]]) -> None:
        kind, (tree, path) = found
        problems, _ = folder.check(kind, as_json(tree))
        assert problems, f"{kind}: {path} was taken silently"

    fuzz(request, 0.3, strange, body)


@pytest.mark.parametrize(
    "name", ["a" * 5000, "./" + "a" * 5000, "b" * 300 + ".yaml", '"x\\0"', '"x\\0.yaml"', ".", "/", "''"]
)
@pytest.mark.parametrize("field", ["model", "extends"])
def test_names_that_no_file_can_have(folder: Folder, name: str, field: str) -> None:
    """Found by the mutations above."""
    text = folder.texts["engine"].replace("model: model.yaml\n", "" if field == "model" else "model: model.yaml\n")
    problems, _ = folder.check("engine", f"{text}\n{field}: {name}\n".encode())
    assert problems[0].code in ("S001", "S020", "S021")
