"""The YAML reader: YAML 1.2 scalars, places of keys and values, and one clear error for each thing it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from ddtreec.core.errors import SpecError
from ddtreec.core.paths import data_folder
from ddtreec.spec import reader
from ddtreec.spec.reader import read_file, read_text, scalar
from ddtreec.spec.text import number, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0", 0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e-5", 1e-5),
        ("1.0e-05", 1e-5),
        ("1E3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("0b11", "0b11"),
        ("2024-01-01", "2024-01-01"),
        ("e5", "e5"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, expected: object) -> None:
    found = scalar(text)
    assert found == expected
    assert type(found) is type(expected)


def test_quoted_scalars_stay_strings() -> None:
    assert read_text("a: '1'\nb: \"true\"\nc: ''\n", "f.yaml").data == {"a": "1", "b": "true", "c": ""}


def test_lists_are_tuples_and_keys_are_strings() -> None:
    assert read_text("1: [1, {b: [2]}]\nnull: x\n", "f.yaml").data == {"1": (1, {"b": (2,)}), "null": "x"}


def test_every_key_and_value_has_its_place() -> None:
    document = read_text("a: 1\nblock:\n  - {id: x, eps: 1.0e-05}\n", "f.yaml")
    places = document.sources
    assert str(places.place(("block", 0, "eps")).loc) == "f.yaml:3:18"
    assert str(places.place(("block", 0, "eps"), key=True).loc) == "f.yaml:3:13"
    assert places.place(("block", 0, "eps")).text == "  - {id: x, eps: 1.0e-05}"
    assert str(places.place(("block", 0, "no", "such")).loc) == "f.yaml:3:5", "the nearest known ancestor"


def test_columns_count_characters_not_bytes() -> None:
    document = read_text("{ключ: 1, b: 2}\n", "f.yaml")
    assert document.sources.place(("b",), key=True).loc.col == 11


def test_aliases_may_be_used_without_cycles() -> None:
    document = read_text("a: &x [1, 2]\nb: *x\n", "f.yaml")
    assert document.data == {"a": (1, 2), "b": (1, 2)}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 8)
)

REFUSED = [
    ("", "S007", "f.yaml", "empty"),
    ("# only a comment\n", "S007", "f.yaml", "empty"),
    ("- 1\n- 2\n", "S007", "f.yaml:1:1", "mapping"),
    ("just words\n", "S007", "f.yaml:1:1", "mapping"),
    ("a: 1\n---\nb: 2\n", "S007", "f.yaml:2:1", "second document"),
    ("? [a]\n: 2\n", "S007", "f.yaml:1:3", "key must be a name"),
    ("a: 1\nb: 2\na: 3\n", "S004", "f.yaml:3:1", "`a` is written twice"),
    ("x: {b: 1, c: 2, b: 3}\n", "S004", "f.yaml:1:17", "`b` is written twice"),
    ("a:\n\tb: 1\n", "S003", "f.yaml:2:1", "tab"),
    ("a:\n  b: 1\n  \tc: 2\n", "S003", "f.yaml:3:3", "tab"),
    ("a: [1, 2\n", "S003", "f.yaml:2:1", "flow sequence"),
    ("a: b: c\n", "S003", "f.yaml:1:5", "mapping values"),
    ("a: 'unfinished\n", "S003", "f.yaml", ""),
    ("a: 1\n b: 2\n", "S003", "f.yaml:2", ""),
    ("a: *nowhere\n", "S005", "f.yaml:1:4", "alias"),
    ("a: &x [*x]\n", "S005", "f.yaml:1:4", "contains itself"),
    ("a: &x {b: {c: *x}}\n", "S005", "f.yaml:1:4", "contains itself"),
    ("a: !!int '3'\n", "S005", "f.yaml:1:4", "tag `!!int`"),
    ("a: !!python/object:os.system x\n", "S005", "f.yaml:1:4", "tag"),
    ("a: !mine {b: 1}\n", "S005", "f.yaml:1:4", "tag `!mine`"),
    ("base: &b {x: 1}\nc:\n  <<: *b\n", "S005", "f.yaml:3:3", "merge keys"),
    (BOMB, "S005", "f.yaml:", "aliases are expanded"),
    ("a: .nan\n", "S006", "f.yaml:1:4", "not a finite number"),
    ("a: [1, -.inf]\n", "S006", "f.yaml:1:8", "not a finite number"),
    ("a: 1e999\n", "S006", "f.yaml:1:4", "beyond the range"),
    ("a: " + "[" * 60 + "]" * 60, "S003", "f.yaml:1", "deep"),
    ("a: " + "[" * 900 + "]" * 900, "S003", "f.yaml", "deep"),
    ("a: " + "[" * 5000 + "]" * 5000, "S003", "f.yaml", "deep"),
]


@pytest.mark.parametrize(("text", "code", "where", "words"), REFUSED, ids=[f"{c}-{w}" for _, c, _, w in REFUSED])
def test_refused_text(text: str, code: str, where: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_text(text, "f.yaml")
    problem = caught.value.problems[0]
    assert problem.code == code
    assert str(problem.loc).startswith(where)
    assert words in problem.message


@pytest.mark.parametrize(("text", "code", "where", "words"), REFUSED, ids=[f"{c}-{w}" for _, c, _, w in REFUSED])
def test_without_libyaml_the_same_is_refused(
    text: str, code: str, where: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_Composer", reader.composer_class(yaml.BaseLoader))
    with pytest.raises(SpecError) as caught:
        read_text(text, "f.yaml")
    assert caught.value.problems[0].code == code


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    path = data_folder("specs") / "models" / "tiny-k2.yaml"
    fast = read_file(path)
    monkeypatch.setattr(reader, "_Composer", reader.composer_class(yaml.BaseLoader))
    slow = read_file(path)
    assert slow.data == fast.data
    assert slow.sources == fast.sources


def test_all_problems_of_a_file_come_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        read_text("a: .nan\nb: 1\nb: 2\nc: !!int 3\n", "f.yaml")
    assert [p.code for p in caught.value.problems] == ["S006", "S004", "S005"]


@pytest.mark.parametrize(
    ("raw", "code", "where", "words"),
    [
        (b"\xef\xbb\xbfkind: tree\n", "S002", ":1:1", "byte order mark"),
        ("kind: tree\n".encode("utf-16"), "S002", ":1:1", "UTF-16"),
        (b"kind: tree\nname: caf\xe9\n", "S002", ":2:10", "0xe9"),
        (b"kind: tree\nname: a\x00b\n", "S002", ":2:8", "control character 0x00"),
        (b"kind: \x1b[31mtree\n", "S002", ":1:7", "0x1b"),
    ],
)
def test_refused_bytes(tmp_path: Path, raw: bytes, code: str, where: str, words: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    with pytest.raises(SpecError) as caught:
        read_file(path)
    problem = caught.value.problems[0]
    assert (problem.code, str(problem.loc)) == (code, f"{path}{where}")
    assert words in problem.message
    assert "UTF-8" in problem.help or problem.help == "remove it"


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: 1\r\nb: two\r\n")
    document = read_file(path)
    assert document.data == {"a": 1, "b": "two"}
    assert document.sources.place(("b",)).loc.line == 2


def test_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("a: 1\n")
    with pytest.raises(SpecError) as caught:
        read_file(tmp_path / "engin.yaml")
    assert caught.value.problems[0].code == "S001"
    assert "engine.yaml" in caught.value.problems[0].help


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("a: 1\n")
    with pytest.raises(SpecError) as caught:
        read_file(tmp_path)
    assert caught.value.problems[0].code == "S001"
    assert "is a folder" in caught.value.problems[0].message
    assert "engine.yaml" in caught.value.problems[0].help


@pytest.mark.parametrize("data", [1e-5, 1.0, 50000.0, 1e-6, 2.827, 3.0e30, 1e22, 0.1, math.pi])
def test_floats_are_written_so_that_they_read_back(data: float) -> None:
    assert scalar(number(data)) == data
    assert isinstance(scalar(number(data)), float)


@pytest.mark.parametrize(
    "data", ["no", "true", "010", "1e5", "", "null", "a: b", "layers.{layer}.x", "x,y", "ü", "- a"]
)
def test_strings_are_written_so_that_they_read_back(data: str) -> None:
    assert read_text(f"a: {value([data])}\n", "f.yaml").data["a"] == (data,)
