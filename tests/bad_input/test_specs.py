"""Every kind of mistake in a spec: code, file:line:col, and the words of message and way out.

Each case edits one file of a sound engine. The expected place is where `at` stands in the edited file, so the test
says what the caret must point at.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ddtreec import driver
from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.spec.codes import TITLES
from ddtreec.spec.find import shipped
from ddtreec.spec.load import load_engine
from ddtreec.spec.reader import read_file

SHIPPED = {
    "model": "tiny-k2",
    "quant": "int4-g32-experts",
    "drafter": "tiny-dflash",
    "tree": "ddtree-16",
    "topology": "cpu",
}


@dataclass(frozen=True)
class Case:
    """One edit and what must be said: `file` is edited, `at` names the caret's place in `where` (else in `file`)."""

    id: str
    file: str
    old: str
    new: str
    code: str
    at: str
    words: tuple[str, ...]
    help: str = ""
    note: str = ""
    where: str = ""


ENGINE = """\
kind: engine
version: 1
name: tiny
model: model.yaml
quant: quant.yaml
drafter: drafter.yaml
tree: tree.yaml
topology: topology.yaml
dtype: float32
limits:
  context: 1024
  chunk: 64
  page: 16
layout:
  attention: auto
"""

CASES = [
    # unknown keys, at every level
    Case("key-engine", "engine", "dtype:", "dtyp:", "S010", "dtyp:", ("unknown key `dtyp`",), "did you mean `dtype`"),
    Case("key-nested", "engine", "chunk:", "chunks:", "S010", "chunks", ("`chunks` in `limits`",), "`chunk`"),
    Case("key-layout", "engine", "attention: auto", "attn: tp", "S010", "attn", ("`attn` in `layout`",), "`attention`"),
    Case("key-model", "model", "tokens:", "token:", "S010", "token:", ("`token` in a model spec",), "`tokens`"),
    Case("key-block", "model", "    ops:", "    opps:", "S010", "opps", ("`model.blocks.embed`",), "`ops`"),
    Case("key-rope", "model", "theta:", "tetha:", "S010", "tetha", ("`model.ropes.rope`",), "`theta`"),
    Case("key-role", "quant", "group:", "grup:", "S010", "grup", ("`quant.roles.experts`",), "`group`"),
    Case("key-drafter", "drafter", "taps:", "tabs:", "S010", "tabs", ("unknown key `tabs`",), "`taps`"),
    Case("key-target", "drafter", "  layers:", "  layer:", "S010", "layer:", ("`drafter.target`",), "`layers`"),
    Case("key-tree", "tree", "budget:", "budgit:", "S010", "budgit", ("unknown key `budgit`",), "`budget`"),
    Case("key-topology", "topology", "  flops:", "  flop:", "S010", "flop:", ("`topology.device`",), "`flops`"),
    Case("key-in-out", "model", "    in: [x]", "    inputs: [x]", "S010", "inputs", ("unknown key `inputs`",)),
    # duplicate keys
    Case("twice", "tree", "budget:", "budget: 3\nbudget:", "S004", "budget: 16", ("written twice",), note="first at"),
    # a known key in the wrong place
    Case(
        "place-tree",
        "engine",
        "limits:",
        "budget: 3\nlimits:",
        "S016",
        "budget: 3",
        ("`budget` does not belong in an engine spec", "under `tree`"),
        "move it there",
        "tree.budget = 16",
    ),
    Case(
        "place-limits",
        "engine",
        "limits:",
        "context: 3\nlimits:",
        "S016",
        "context: 3",
        ("`context` does not belong", "under `limits`"),
        note="limits.context = 1024",
    ),
    Case(
        "place-model",
        "model",
        "dims:",
        "tree: ddtree-8\ndims:",
        "S016",
        "tree: ddtree-8",
        ("`tree` does not belong in a model spec", "in the engine spec"),
    ),
    Case(
        "place-deep",
        "engine",
        "  page: 16",
        "  page: 16\n  devices: 2",
        "S016",
        "devices: 2",
        ("`devices` does not belong in `limits`", "under `topology`"),
        note="topology.devices = 1",
    ),
    # missing keys
    Case("gap-top", "tree", "mode: ddtree\n", "", "S011", "kind: tree", ("`mode` of the tree spec is missing",)),
    Case("gap-limits", "engine", "  context: 1024\n", "", "S011", "limits:", ("`context` of `limits` is missing",)),
    Case("gap-op", "model", "id: q_a, op: linear", "id: q_a", "S011", "{id: q_a", ("`op` of `model.blocks",)),
    # wrong types
    Case("type-int", "tree", "budget: 16", "budget: many", "S012", "many", ("a whole number", '"many"'), "bare number"),
    Case("type-float", "tree", "budget: 16", "budget: 1.6e1", "S012", "1.6e1", ("a whole number",), "write 16"),
    Case("type-octal", "tree", "budget: 16", "budget: 010", "S012", "010", ("a whole number", '"010"'), "write 10"),
    Case("type-underscore", "engine", "1024", "1_024", "S012", "1_024", ("a whole number",), "write 1024"),
    Case("type-hex", "engine", "1024", "0x400", "S012", "0x400", ("a whole number",), "decimal"),
    Case("type-sexagesimal", "engine", "1024", "17:04", "S012", "17:04", ("a whole number",)),
    Case("type-unit", "engine", "1024", "1k", "S012", "1k", ("a whole number", '"1k"'), "without unit"),
    Case("type-quoted", "engine", "1024", '"1024"', "S012", '"1024"', ("a whole number",), "without"),
    Case("type-bool", "tree", "false", "no", "S012", "no\n", ("true or false", '"no"'), "write false"),
    Case("type-bool-int", "tree", "budget: 16", "budget: true", "S012", "true", ("a whole number, found true",)),
    Case("type-null", "tree", "budget: 16", "budget:", "S012", "  # nodes", ("found nothing",)),
    Case(
        "type-list",
        "drafter",
        "taps: [1, 2, 3]",
        "taps: 4",
        "S012",
        "4   # target layers",
        ("must be a list, found 4",),
    ),
    Case("type-map", "engine", "model: model.yaml", "model: {a: 1}", "S012", "{a: 1}", ("a string", "a mapping")),
    Case("type-string", "engine", "quant.yaml", "4", "S012", "4\n", ("must be a string, found 4",), "quote it"),
    Case("type-item", "model", "eos: [4093]", "eos: [4093, x]", "S012", "x]", ("`model.tokens.eos.1`",)),
    # values out of range
    Case("budget-0", "tree", "budget: 16", "budget: 0", "S013", "0  #", ("at least 1, found 0",)),
    Case("budget-negative", "tree", "budget: 16", "budget: -4", "S013", "-4", ("at least 1, found -4",)),
    Case("budget-huge", "tree", "budget: 16", "budget: 128", "S013", "128", ("at most 127, found 128",)),
    Case("choice", "engine", "float32", "float23", "S013", "float23", ("float32 or bfloat16",), "`float32`"),
    Case("block-1", "drafter", "block_size: 8", "block_size: 1", "S013", "1     #", ("at least 2",)),
    Case("pages-0", "engine", "page: 16", "page: 0", "S013", "0\n", ("`limits.page` must be greater than 0",)),
    Case("dim-0", "model", "hidden: 256", "hidden: 0", "S013", "0       #", ("`model.dims.hidden`",)),
    Case("theta-0", "model", "50000.0", "0", "S013", "0}", ("`model.ropes.rope.theta`", "greater than 0")),
    Case("name", "engine", "name: tiny", "name: My Engine", "S013", "My", ("cannot be",), "small letters"),
    Case("pin", "engine", "auto", "auto\n  experts: tp8", "S013", "tp8", ("`layout.experts`",), "epAxtpB"),
    Case("ident", "model", "  heads: 8", "  he ads: 8", "S013", "he ads", ("not a proper name",), "underscores"),
    # finite numbers
    Case("nan", "model", "50000.0", ".nan", "S006", ".nan", ("not a finite number",)),
    Case("inf", "topology", "3.0e+10", ".inf", "S006", ".inf", ("not a finite number",)),
    # kind and version
    Case(
        "kind",
        "engine",
        "tree: tree.yaml",
        "tree: quant.yaml",
        "S014",
        "quant\nversion",
        ("is a quant spec",),
        "name a tree spec",
        "named by `tree:`",
        "quant",
    ),
    Case("kind-word", "tree", "kind: tree", "kind: tre", "S014", "tre\n", ("`kind` must be tree",)),
    Case("version-new", "tree", "version: 1", "version: 2", "S015", "2\n", ("version 2", "ddtreec 0."), "newer"),
    Case("version-old", "tree", "version: 1", "version: 0", "S015", "0\n", ("version 0", "ddtreec 0."), "`version: 1`"),
    # references
    Case("ref-name", "engine", "tree.yaml", "ddtre-16", "S020", "ddtre", ("no tree spec",), "`ddtree-16`"),
    Case("ref-far", "engine", "tree.yaml", "huge", "S020", "huge", ("no tree spec",), "chain, ddtree-16"),
    Case("ref-file", "engine", "model.yaml", "modle.yaml", "S020", "modle", ("does not exist",), "`model.yaml`"),
    Case("ref-suffix", "engine", "model.yaml", "model", "S020", "model\n", ("no model spec",), "`model.yaml`"),
    Case(
        "extends-gone", "tree", "kind:", "extends: ./tre.yaml\nkind:", "S020", "./tre", ("does not exist",), "tree.yaml"
    ),
    Case("extends-name", "tree", "kind:", "extends: chian\nkind:", "S020", "chian", ("no tree spec",), "`chain`"),
    Case("extends-type", "tree", "kind:", "extends: 4\nkind:", "S012", "4\n", ("`extends` must be the name",)),
    Case("extends-kind", "tree", "kind:", "extends: ./quant.yaml\nkind:", "S014", "./quant", ("of kind quant",)),
    Case(
        "extends-self",
        "tree",
        "kind:",
        "extends: ./tree.yaml\nkind:",
        "S021",
        "./tree",
        ("circle", "tree.yaml -> ", "tree.yaml"),
        "remove one",
    ),
    # tokens and positions
    Case(
        "eos", "model", "eos: [4093]", "eos: [4093, 4096]", "S033", "4096]", ("token 4096", "4096"), note="dims.vocab"
    ),
    Case("bos", "model", "bos: 4092", "bos: 9999", "S033", "9999", ("token 9999", "vocabulary of 4096")),
    Case("no-eos", "model", "eos: [4093]", "eos: []", "S033", "[]", ("never end",)),
    # the drafter's contract
    Case(
        "layers", "drafter", "layers: 5", "layers: 7", "S034", "7\n", ("7 layers", "5 layers"), note="model.stack has 5"
    ),
    Case("hidden", "drafter", "  hidden: 256\n", "  hidden: 255\n", "S034", "255", ("255", "256"), note="dims.hidden"),
    Case("vocab", "drafter", "  vocab: 4096\nblock", "  vocab: 4095\nblock", "S034", "4095", ("4095 tokens", "4096")),
    Case("tap-range", "drafter", "[1, 2, 3]", "[1, 2, 5]", "S035", "5]", ("tap 5", "layers 0 to 4"), "count from 0"),
    Case("tap-negative", "drafter", "[1, 2, 3]", "[-1, 2, 3]", "S013", "-1", ("at least 0",)),
    Case(
        "tap-twice",
        "drafter",
        "[1, 2, 3]",
        "[1, 2, 2]",
        "S035",
        "2]",
        ("layer 2 is tapped twice",),
        note="first",
    ),
    Case("tau-order", "drafter", "[8, 4.92]", "[3, 3.5]", "S045", "3, 3.5", ("3 follows 7",), "sort them"),
    Case("tau-twice", "drafter", "[8, 4.92]", "[7, 4.92]", "S045", "7, 4.92", ("7 follows 7",), "each budget once"),
    Case("tau-low", "drafter", "2.66", "0.66", "S045", "0.66", ("a tau of 0.66", "2 nodes"), "1 to 3 tokens"),
    Case("tau-high", "drafter", "2.66", "3.66", "S045", "3.66", ("a tau of 3.66",), "1 to 3 tokens"),
    Case("tau-nodes-0", "drafter", "[1, 1.89]", "[0, 1.0]", "S013", "0, 1.0", ("greater than 0, found 0",)),
    Case("tau-nan", "drafter", "2.66", ".nan", "S006", ".nan", ("not a finite number",)),
    Case("tau-three", "drafter", "[2, 2.66]", "[2, 2.66, 1]", "S013", "[2, 2.66, 1]", ("2 items at most, found 3",)),
    Case("no-taps", "drafter", "[1, 2, 3]", "[]", "S035", "[]", ("at least one tap",)),
    Case("mask-range", "drafter", "4094", "4096 ", "S033", "4096  ", ("mask token 4096", "vocabulary of 4096")),
    Case("mask-eos", "drafter", "4094", "4093", "S033", "4093", ("also the eos token",), note="tokens.eos at"),
    Case("mask-pad", "drafter", "4094", "4095", "S033", "4095", ("also the pad token",)),
    # tree, drafter and limits
    Case("no-tree", "engine", "tree: tree.yaml\n", "", "S036", "drafter:", ("a drafter, but no tree",), "add `tree:`"),
    Case(
        "no-drafter",
        "engine",
        "drafter: drafter.yaml\n",
        "",
        "S036",
        "tree:",
        ("a tree, but no drafter",),
        "add `drafter:`",
    ),
    Case(
        "context", "engine", "1024", "4096", "S037", "4096", ("4096", "2048"), "at most 2048", "model.positions = 2048"
    ),
    Case(
        "chunk", "engine", "chunk: 64", "chunk: 1025", "S037", "1025", ("chunk of 1025", "1024"), note="limits.context"
    ),
    Case(
        "chunk-default",
        "engine",
        "1024\n  chunk: 64",
        "32",
        "S037",
        "32\n  page",
        ("chunk of 64",),
        "default: add `chunk: 32`",
    ),
    Case("page", "engine", "page: 16", "page: 2000", "S037", "2000", ("page of 2000",)),
    Case(
        "budget-context",
        "engine",
        "context: 1024\n  chunk: 64",
        "context: 16\n  chunk: 16",
        "S036",
        "16  #",
        ("a tree of 16 nodes and its root",),
        "at most 15",
        "limits.context = 16",
        "tree",
    ),
    # quant
    Case(
        "role", "quant", "  experts:", "  expert:", "S038", "expert:", ("no weight has the role `expert`",), "`experts`"
    ),
    Case("no-group", "quant", ", group: 32", "", "S038", "experts: {", ("need a `group`",), "group: 32"),
    Case("dense-group", "quant", "int4,", "dense,", "S038", "group: 32", ("`group` has no meaning",), "remove it"),
    Case("group-7", "quant", "group: 32", "group: 12", "S038", "12,", ("12 is not a multiple of 8",)),
    Case(
        "group-48", "quant", "group: 32", "group: 48", "S038", "48,", ("256 % 48 = 16",), "64, 32", "dims.hidden = 256"
    ),
    Case("router", "quant", "  experts:", "  router:", "S038", "router:", ("router is never packed",)),
    # units
    Case("unit-none", "topology", "16GiB", "16", "S012", "16\n", ("must be a string, found 16",)),
    Case("unit-half", "topology", "16GiB", "16G", "S041", "16G", ("unknown unit 'G'", "GiB (powers of 1024)")),
    Case("unit-case", "topology", "16GiB", "16gb", "S041", "16gb", ("did you mean GB?",)),
    Case("unit-quoted", "topology", "16GiB", '"16"', "S041", '"16"', ("has no unit",)),
    Case("rate", "topology", "9GB/s", "9GB", "S041", "9GB]", ("'9GB' is not a rate",)),
    Case("order", "topology", "[64MiB", "[1KiB", "S041", "- [1MiB", ("must grow",)),
    Case("reserved", "topology", "16GiB", "16GiB\n  reserved: 20GiB", "S041", "20GiB", ("nothing is left",)),
    Case("no-link", "topology", "devices: 1", "devices: 2", "S011", "2\n", ("2 devices, but no `link`",)),
]


def _folder(tmp_path: Path) -> dict[str, str]:
    texts = {kind: shipped(kind)[name].read_text("utf-8") for kind, name in SHIPPED.items()}  # type: ignore[index]
    texts["engine"] = ENGINE
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    return texts


def _place(text: str, at: str) -> tuple[int, int]:
    assert text.count(at) >= 1, f"{at!r} is not in the file"
    start = text.index(at)
    before = text[:start]
    return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1


def _errors(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        load_engine(path)
    assert caught.value.exit_code == 2
    assert "Traceback" not in caught.value.render()
    return caught.value.problems


def test_the_engine_of_these_tests_is_sound(tmp_path: Path) -> None:
    _folder(tmp_path)
    assert load_engine(tmp_path / "engine.yaml").warnings == ()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_mistake_is_told_where_what_and_how_out(tmp_path: Path, case: Case) -> None:
    texts = _folder(tmp_path)
    assert case.old in texts[case.file]
    edited = texts[case.file].replace(case.old, case.new, 1)
    (tmp_path / f"{case.file}.yaml").write_text(edited, "utf-8")
    problems = _errors(tmp_path / "engine.yaml")
    problem = next((p for p in problems if p.code == case.code), problems[0])
    assert problem.code == case.code
    assert case.code in TITLES
    assert problem.loc is not None
    where = case.where or case.file
    text = edited if where == case.file else texts[where]
    assert problem.loc.file == str(tmp_path / f"{where}.yaml")
    assert (problem.loc.line, problem.loc.col) == _place(text, case.at)
    for word in case.words:
        assert word in problem.message
    assert case.help in problem.help
    assert case.note in problem.note
    if problem.source:
        assert problem.source == text.split("\n")[problem.loc.line - 1]


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.code in ("S010", "S012", "S013", "S011")][:12], ids=lambda c: c.id
)
def test_one_mistake_is_one_message(tmp_path: Path, case: Case) -> None:
    texts = _folder(tmp_path)
    (tmp_path / f"{case.file}.yaml").write_text(texts[case.file].replace(case.old, case.new, 1), "utf-8")
    problems = [p for p in _errors(tmp_path / "engine.yaml") if p.code != "S011" or case.code == "S011"]
    assert len(problems) == 1, [p.render() for p in problems]


def _known_keys() -> list[tuple[str, str, Loc]]:
    """(spec, dotted path, place) of every key whose name the schema fixes, in every file of the sound engine."""
    found: list[tuple[str, str, Loc]] = []
    for kind, name in SHIPPED.items():
        document = read_file(shipped(kind)[name])  # type: ignore[index]
        for path, place in document.sources.keys.items():
            free = len(path) > 1 and path[-2] in ("dims", "ropes", "blocks", "roles")
            if not free and not ("ops" in path and path[-1] not in ("id", "op", "in", "out")):
                found.append((kind, ".".join(map(str, path)), place.loc))
    return found


@pytest.mark.parametrize("kind", SHIPPED)
def test_every_key_misspelt_is_found_at_its_place(tmp_path: Path, kind: str) -> None:
    """Misspell one key at a time, everywhere. A misspelt optional key must not be taken for an absent one."""
    texts = _folder(tmp_path)
    keys = [(path, loc) for where, path, loc in _known_keys() if where == kind]
    step = max(1, len(keys) // 25)
    for path, loc in keys[::step]:
        lines = texts[kind].splitlines(keepends=True)
        line = lines[loc.line - 1]
        key = path.rsplit(".", 1)[-1]
        assert line[loc.col - 1 :].startswith(key)
        lines[loc.line - 1] = line[: loc.col - 1] + "q" + line[loc.col - 1 :]
        (tmp_path / f"{kind}.yaml").write_text("".join(lines), "utf-8")
        problems = [p for p in _misspelt(tmp_path) if p.code in ("S010", "S011", "S016") and p.loc]
        if path.endswith((".id", ".op")):  # the other fields of an op are its own, so here the gap is told
            assert [p.loc.line for p in problems if p.loc] == [loc.line], path
        else:
            assert (loc.line, loc.col) in {(p.loc.line, p.loc.col) for p in problems if p.loc}, path


def _misspelt(tmp_path: Path) -> tuple[Problem, ...]:
    """Problems of the specs or, where the key is one of an op, of the graph."""
    with pytest.raises(SpecError) as caught:
        driver.check(load_engine(tmp_path / "engine.yaml"))
    return caught.value.problems


def test_all_mistakes_of_a_stage_in_all_files_come_together(tmp_path: Path) -> None:
    texts = _folder(tmp_path)
    edits = {
        "engine": ("chunk: 64", "chunck: 64"),
        "model": ("hidden: 256", "hidden: big"),
        "tree": ("budget: 16", "budget: 0"),
        "drafter": ("block_size: 8", "block_size: [8]"),
    }
    for name, (old, new) in edits.items():
        (tmp_path / f"{name}.yaml").write_text(texts[name].replace(old, new, 1), "utf-8")
    found = {(Path(p.loc.file).stem, p.code) for p in _errors(tmp_path / "engine.yaml") if p.loc}
    assert found == {("engine", "S010"), ("model", "S012"), ("tree", "S013"), ("drafter", "S012")}


def test_syntax_mistakes_in_two_files_come_together(tmp_path: Path) -> None:
    texts = _folder(tmp_path)
    (tmp_path / "model.yaml").write_text(texts["model"] + "dims: {}\n", "utf-8")
    (tmp_path / "tree.yaml").write_text("kind: [tree\n", "utf-8")
    assert [p.code for p in _errors(tmp_path / "engine.yaml")] == ["S004", "S003"]


def test_a_circle_of_extends_names_all_of_it(tmp_path: Path) -> None:
    texts = _folder(tmp_path)
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: ./{base}.yaml\n", "utf-8")
    (tmp_path / "engine.yaml").write_text(texts["engine"].replace("tree.yaml", "a.yaml"), "utf-8")
    problem = _errors(tmp_path / "engine.yaml")[0]
    assert problem.code == "S021"
    names = [Path(part).name for part in problem.message.split(": ", 1)[1].split(" -> ")]
    assert names == ["a.yaml", "b.yaml", "c.yaml", "a.yaml"]
    assert str(problem.loc) == f"{tmp_path}/c.yaml:1:10"


K26 = "kimi-k2.6-rtx-pro-6000-x8-pcie"

OVERRIDES = [
    ("tiny-k2-cpu", "limits.contxt=4", "S010", ("unknown key `contxt`",), "`context`"),
    ("tiny-k2-cpu", "tre.budget=4", "S010", ("unknown key `tre`",), "`tree`"),
    ("tiny-k2-cpu", "tree.budget=1e1", "S012", ("a whole number",), "write 10"),
    ("tiny-k2-cpu", "tree.budget=.nan", "S006", ("not a finite number",), ""),
    ("tiny-k2-cpu", "tree.budget=[1", "S003", ("flow sequence",), ""),
    ("tiny-k2-cpu", "tree.budget", "S022", ("not of the form path=value",), "--set tree.budget=16"),
    ("tiny-k2-cpu", "=4", "S022", ("not of the form",), ""),
    ("tiny-k2-cpu", "tree..budget=4", "S022", ("not of the form",), ""),
    ("tiny-k2-cpu", "tree.budget.x=4", "S022", ("`tree.budget` is 16",), ""),
    ("tiny-k2-cpu", "model.blocks.attention.ops.q_nrm.eps=1", "S022", ("no item `q_nrm`",), "`q_norm`"),
    ("tiny-k2-cpu", "model.stack.9.repeat=1", "S022", ("no item `9`",), "0 to 3"),
    ("tiny-k2-cpu", "tree=ddtree-17", "S020", ("no tree spec is called `ddtree-17`",), "`ddtree-16`"),
    ("tiny-k2-cpu", "topology=null", "S011", ("`topology` of the engine spec is missing",), "add `topology:`"),
    ("tiny-k2-cpu", "tree.mode=", "S011", ("`mode` of the tree spec is missing",), "add `mode:`"),
    ("tiny-k2-cpu", "drafter.expected_tau.points=[]", "S045", ("no points",), "bench --tau"),
    ("tiny-k2-cpu", "model=./none.yaml", "S020", ("does not exist",), ""),
    ("moonlight-16b-a3b-h200-x1", "tree.budget=4", "S022", ("names no tree",), "--set tree=NAME"),
    ("moonlight-16b-a3b-h200-x1", "tree=chain", "S036", ("a tree, but no drafter",), "add `drafter:`"),
    (K26, "layout.experts=ep5xtp1", "S040", ("ep 5 times tp 1 is 5, but there are 8",), "ep1xtp8, ep2xtp4"),
    (K26, "layout.experts=ep0xtp8", "S040", ("is 0, but there are 8",), "ep1xtp8"),
]


@pytest.mark.parametrize(("engine", "text", "code", "words", "hint"), OVERRIDES, ids=[t for _, t, *_ in OVERRIDES])
def test_a_wrong_override_points_at_itself(
    engine: str, text: str, code: str, words: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_engine(engine, [text])
    problem = caught.value.problems[0]
    assert (problem.code, str(problem.loc)) == (code, f"--set {text}")
    for word in words:
        assert word in problem.message
    assert hint in problem.help


PINS = [
    (["layout.attention=tp", "topology.devices=5"], "64 over 5 devices: 64 % 5 = 4", "1, 2, 4, 8", "heads = 64"),
    (["layout.mlp=tp", "topology.devices=3"], "2048 over 3 devices", "1, 2, 4, 8", "shared_inter = 2048"),
    (["layout.vocab=parallel", "topology.devices=3"], "163840 over 3", "1, 2, 4, 5", "vocab = 163840"),
    (["layout.a_proj=gather", "topology.devices=5"], "1536 over 5", "1, 2, 3, 4, 6", "q_lora = 1536"),
    (["layout.drafter=tp", "topology.devices=16"], "8 over 16 devices", "1, 2, 4, 8", "drafter.dims.kv_heads = 8"),
    (["layout.experts=ep5xtp1", "topology.devices=5"], "384 % 5 = 4", "replicated", "experts = 384"),
    (["layout.experts=ep1xtp3", "topology.devices=3"], "2048 % 3 = 2", "ep3xtp1", "expert_inter = 2048"),
    (
        ["layout.experts=ep1xtp8", "quant.roles.experts.group=512"],
        "leave 256 each, which cuts INT4 groups of 512", "ep2xtp4, ep4xtp2, ep8xtp1", "quant.roles.experts.group = 512",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sets", "words", "hint", "note"), PINS, ids=[" ".join(sets) for sets, *_ in PINS])
def test_a_pinned_layout_that_does_not_divide(sets: list[str], words: str, hint: str, note: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_engine(K26, sets)
    problem = next(p for p in caught.value.problems if words in p.message)
    assert problem.code == "S040"
    assert str(problem.loc) == f"--set {sets[0]}"
    assert hint in problem.help
    assert note in problem.note


def test_experts_and_heads_that_do_not_divide_come_together() -> None:
    sets = ["topology.devices=3", "layout.attention=tp", "layout.experts=ep1xtp3"]
    with pytest.raises(SpecError) as caught:
        load_engine(K26, sets)
    assert len([p for p in caught.value.problems if p.code == "S040"]) == 2


@pytest.mark.parametrize("pin", ["ep1xtp8", "ep2xtp4", "ep4xtp2", "ep8xtp1", "replicated", "auto"])
def test_layouts_that_divide_are_accepted(pin: str) -> None:
    assert load_engine(K26, [f"layout.experts={pin}"]).engine.layout.experts == pin


def test_what_is_not_used_is_a_warning() -> None:
    loaded = load_engine("tiny-k2-cpu", ["model.dims.spare=3"])
    assert [(w.code, w.message) for w in loaded.warnings] == [("S032", "`dims.spare` is not used")]
