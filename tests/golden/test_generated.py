"""generated/ is what the compiler writes today, byte for byte, and stays readable and small."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from ddtreec import driver
from tools import house
from tools.golden import ENGINES

ROOT = Path(__file__).resolve().parents[2]


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("engine", ENGINES)
def test_regenerating_gives_no_difference(engine: str, tmp_path: Path) -> None:
    driver.compile_engine(engine, to=ENGINES[engine], out=tmp_path / engine)
    fresh, committed = content(tmp_path / engine), content(ROOT / "generated" / engine)
    assert sorted(fresh) == sorted(committed), "run `make golden` and commit the difference"
    for path, data in fresh.items():
        assert data == committed[path], f"generated/{engine}/{path} is out of date: run `make golden`"


def test_the_house_sees_what_is_out_of_date(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "generated", tmp_path / "g")
    assert list(house.generated(tmp_path / "g")) == []
    one, two = list(ENGINES)[:2]
    step = tmp_path / "g" / one / "step.py"
    step.write_text(step.read_text() + "\n")
    (tmp_path / "g" / two / "plan.txt").unlink()
    (tmp_path / "g" / two / "src" / "more.cu").write_text("")
    told = [line.split(" ")[0] for line in house.generated(tmp_path / "g")]
    assert told == [f"generated/{one}/step.py", f"generated/{two}/plan.txt", f"generated/{two}/src/more.cu"]


def test_nothing_else_is_there() -> None:
    assert sorted(p.name for p in (ROOT / "generated").iterdir()) == sorted(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_text_of_a_sane_size(engine: str) -> None:
    files = content(ROOT / "generated" / engine)
    assert sum(map(len, files.values())) < 3_000_000
    for path, data in files.items():
        assert data.decode().endswith("\n"), path


@pytest.mark.parametrize("engine", ENGINES)
def test_the_step_program_is_straight_line(engine: str) -> None:
    """Every program is one function of plain calls and yields: nothing to decide is left to the runtime."""
    tree = ast.parse((ROOT / "generated" / engine / "step.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [f.name for f in functions] == ["target", "draft_context", "draft_block"]
    for function in functions:
        assert all(isinstance(statement, ast.Expr | ast.Return) for statement in function.body)
