"""Rounds, the trace file and the page around it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtreec.core.errors import BundleError, SpecError
from ddtreec_runtime import viewer
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.trace import (
    Recorder,
    Trace,
    decode_trace,
    encode_trace,
    write_trace,
    write_viewer,
)

ROUND = Round(
    start=3,
    root=7,
    tokens=(1, 2, 3),
    parents=(-1, 0, 1, 0),
    depths=(1, 2, 1),
    ranks=(0, 0, 1),
    probabilities=(0.5, 0.25, 0.25),
    accepted=(0, 1, 2),
    posterior=(1, 2, 9, None),
    next_token=9,
)
SECOND = replace(ROUND, start=6, root=9, accepted=(0,), posterior=(4, None, None, None), next_token=4)
# Tokens 5 and 6 are the two halves of one character.
WORDS = {
    1: b"one ",
    2: b"two ",
    3: b"x",
    4: b"four",
    7: b"seven ",
    9: b"nine ",
    5: "é".encode()[:1],
    6: "é".encode()[1:],
}


def decode(ids: Any) -> str:
    return b"".join(WORDS[token] for token in ids).decode("utf-8", "replace")


def traced(*rounds: Round, output_ids: list[int], **changes: Any) -> Trace:
    recorder = Recorder()
    for record in rounds:
        recorder(record)
    arguments: dict[str, Any] = {
        "engine": "tiny",
        "mode": "tree",
        "budget": 3,
        "prompt_ids": [8, 8, 8],
        "prompt_text": "p",
        "output_ids": output_ids,
        "finish_reason": "length",
        "decode": decode,
        "piece": lambda token: decode([token]),
    }
    return recorder.trace(**(arguments | changes))


# ---- Round ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": (1, 2)}, "a round of 2 tokens"),
        ({"posterior": (1,)}, "posterior picks"),
        ({"parents": (0, 0, 1, 0)}, "parents\\[0\\] is 0"),
        ({"parents": (-1, 0, 2, 0)}, "parents\\[2\\] is 2"),
        ({"depths": (1, 1, 1)}, "node 2 has depth 1"),
        ({"accepted": ()}, "starts with the root"),
        ({"accepted": (1, 2)}, "starts with the root"),
        ({"accepted": (0, 2)}, "node 2 is no child of node 0"),
        ({"accepted": (0, 4)}, "node 4 is no child of node 0"),
    ],
)
def test_a_round_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ROUND, **change)


def test_round_of_a_tree() -> None:
    # Half, a quarter, unknown.
    tree = SimpleNamespace(
        tokens=[1, 2, 3], parents=[-1, 0, 1, 0], depths=[1, 2, 1], ranks=[0, 0, -1],
        scores=[-0.6931471805599453, -1.3862943611198906, float("nan")],
    )  # fmt: skip
    record = Round.of(tree, start=3, root=7, accepted=[0, 1], posterior=[1, 4, -1, None], next_token=4)
    assert record.probabilities == (pytest.approx(0.5), pytest.approx(0.25), None)
    assert record.posterior == (1, 4, None, None)
    assert record.committed == (1, 4)


def test_step_probability_is_that_of_the_token_alone() -> None:
    assert [ROUND.step_probability(node) for node in (1, 2, 3)] == [0.5, 0.5, 0.25]
    unknown = replace(ROUND, probabilities=(None, 0.25, 0.0))
    assert [unknown.step_probability(node) for node in (1, 2, 3)] == [None, None, 0.0]
    assert replace(ROUND, probabilities=(0.0, 0.0, 0.1)).step_probability(2) == 0.0


# ---- Recorder ----


def test_text_of_each_round() -> None:
    trace = traced(ROUND, SECOND, output_ids=[7, 1, 2, 9, 4])
    first, second = trace.rounds
    assert trace.text == "seven one two nine four"
    assert trace.text[: first.text_start] == "seven "
    assert trace.text[first.text_start : first.bonus_start] == "one two "
    assert trace.text[first.bonus_start : first.text_end] == "nine "
    assert second.text_start == second.bonus_start == first.text_end
    assert trace.text[second.bonus_start : second.text_end] == "four"
    assert [r.output_tokens for r in trace.rounds] == [4, 5]
    assert first.pieces == ("one ", "two ", "x") and first.root_piece == "seven " and first.next_piece == "nine "
    assert first.posterior_pieces == ("one ", "two ", "nine ", None)
    assert trace.tau == 2.0


def test_what_was_committed_beyond_the_output_has_no_text() -> None:
    trace = traced(ROUND, output_ids=[7, 1])
    (only,) = trace.rounds
    assert trace.text == "seven one "
    assert (only.text_start, only.bonus_start, only.text_end) == (6, 10, 10)
    assert only.output_tokens == 2


def test_text_cut_by_a_stop_string() -> None:
    trace = traced(ROUND, output_ids=[7, 1, 2, 9], text="seven one t", finish_reason="stop")
    (only,) = trace.rounds
    assert (only.text_start, only.bonus_start, only.text_end) == (6, 11, 11)


def test_a_character_of_two_tokens_counts_where_it_is_whole() -> None:
    halves = replace(ROUND, tokens=(5, 2, 3), accepted=(0, 1), posterior=(5, 6, None, None), next_token=6)
    trace = traced(halves, output_ids=[7, 5, 6])
    (only,) = trace.rounds
    assert trace.text == "seven é"
    assert (only.text_start, only.bonus_start, only.text_end) == (6, 6, 7)


def test_rounds_that_do_not_lead_to_the_output_are_refused() -> None:
    with pytest.raises(ValueError, match="do not lead to output_ids"):
        traced(ROUND, output_ids=[7, 1, 3])
    with pytest.raises(ValueError, match="round 2 starts from token 8, not from 9"):
        traced(ROUND, replace(SECOND, root=8), output_ids=[7, 1, 2, 9, 4])


def test_no_rounds() -> None:
    trace = traced(output_ids=[7])
    assert trace.rounds == () and trace.tau == 0.0 and trace.text == "seven "
    assert traced(output_ids=[]).text == ""


# ---- the file ----


def test_file_round_trip_and_format(tmp_path: Path) -> None:
    trace = traced(ROUND, SECOND, output_ids=[7, 1, 2, 9, 4])
    write_trace(tmp_path / "t.json", trace)
    data = (tmp_path / "t.json").read_bytes()
    assert decode_trace(data) == trace
    plain = json.loads(data)
    assert plain["format"] == 1 and plain["engine"] == "tiny" and plain["mode"] == "tree" and plain["budget"] == 3
    assert plain["rounds"][0]["parents"] == [-1, 0, 1, 0]
    assert plain["rounds"][0]["probabilities"] == [0.5, 0.25, 0.25]
    assert set(Round.__dataclass_fields__) <= set(plain["rounds"][0])
    assert encode_trace(trace) == data and data.endswith(b"}\n")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", SpecError, "t.json is no trace"),
        (b"[1]", SpecError, "t.json is no trace"),
        (b"{}", SpecError, "t.json is no trace"),
        (b'{"format": 2}', BundleError, "format 2; this ddtreec reads format 1"),
        (b'{"format": 1}', SpecError, "missing required field"),
        (b'{"format": 1, "engine": 3}', SpecError, r"\$.engine"),
    ],
)
def test_other_files_are_refused_in_words(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        decode_trace(data, "t.json")


def test_unknown_fields_are_refused() -> None:
    data = msgspec.json.decode(encode_trace(traced(ROUND, output_ids=[7])))
    data["rounds"][0]["more"] = 1
    with pytest.raises(SpecError, match="more"):
        decode_trace(msgspec.json.encode(data))


def test_writing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.json"
    target.write_text("before")
    trace = traced(ROUND, output_ids=[7])

    def fails(self: Path, other: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails)
        with pytest.raises(SpecError, match="No space left on device"):
            write_trace(target, trace)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]
    mask = os.umask(0o027)
    try:
        write_trace(target, trace)
    finally:
        os.umask(mask)
    assert list(tmp_path.iterdir()) == [target]
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    for write in (write_trace, write_viewer):
        with pytest.raises(SpecError, match=r"error\[T003\]: cannot write .*none/t: No such file") as caught:
            write(tmp_path / "none" / "t", traced(ROUND, output_ids=[7]))
        assert "help:" in caught.value.render()


# ---- the page ----


class Page(HTMLParser):
    """Elements in order, and the text of each script."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


ATTACKS = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]>&lt;&amp;",
    "\u2028\u2029",
    "{{data}}{{script}}",
    '"\\',
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_gets_out_of_the_data(tmp_path: Path, attack: str) -> None:
    harmless = Page(viewer.page("tiny trace", encode_trace(traced(ROUND, output_ids=[7])).decode()))
    trace = traced(ROUND, output_ids=[7], piece=lambda _: attack, prompt_text=attack, engine=attack, text=attack)
    write_viewer(tmp_path / "t.html", trace)
    page = Page((tmp_path / "t.html").read_text("utf-8"))
    assert page.tags == harmless.tags
    assert len(page.scripts) == 2
    assert decode_trace(page.scripts[0].encode()) == trace
    assert page.scripts[1] == harmless.scripts[1]


@given(st.text())
def test_json_for_html_keeps_the_value_and_has_no_markup(text: str) -> None:
    data = json.dumps({text: text}, ensure_ascii=False)
    safe = viewer.json_for_html(data)
    assert json.loads(safe) == {text: text}
    assert not set(safe) & set("<>&\u2028\u2029")


def test_page_asks_for_nothing_and_lets_only_its_script_run() -> None:
    page = Page(viewer.page("t", "{}"))
    assert [attrs for tag, attrs in page.tags if {"src", "href"} & set(attrs) or tag in ("link", "img", "iframe")] == []
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv"))
    assert policy and policy.startswith("default-src 'none'; script-src 'sha256-") and "http" not in policy
    with pytest.raises(ValueError):
        viewer.page("t", "{} </script>")


# ---- the command ----


class FakeEngine:
    """Stands in for the engine: what the command passes on, and two rounds."""

    loaded: tuple[Any, ...] = ()
    asked: dict[str, Any] = {}
    closed = False
    tokenizer, drafts = None, True
    plan = SimpleNamespace(
        engine="tiny-k2-cpu", tree=SimpleNamespace(budget=16, mode="ddtree"), drafter=SimpleNamespace(block=8)
    )

    @classmethod
    def load(cls, *arguments: Any, dtype: str | None, threads: int | None) -> FakeEngine:
        cls.loaded, cls.closed = arguments, False
        return cls()

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(self, prompt_ids: list[int], *, on_round: Any, **options: Any) -> SimpleNamespace:
        type(self).asked = {"prompt_ids": prompt_ids, **options}
        on_round(ROUND)
        on_round(SECOND)
        return SimpleNamespace(output_ids=[7, 1, 2, 9, 4], text="", finish_reason="length")

    def close(self) -> None:
        type(self).closed = True


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs `trace` with arguments in an empty folder; gives exit code and what it said on stderr."""
    from click.testing import CliRunner

    import ddtreec_runtime
    from ddtreec.cli.trace import trace

    monkeypatch.setattr(ddtreec_runtime, "Engine", FakeEngine, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(trace, ["bundle", "--weights", "weights", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.stdout == ""
        return result.exit_code, result.stderr

    (tmp_path / "weights").mkdir()
    return run


def test_command_writes_both_files(command: Any, tmp_path: Path) -> None:
    code, said = command(
        "--prompt-ids", "8, 8,8", "-o", "t.json", "--html", "t.html", "--seed", "5", "--temperature", "0.8"
    )
    assert (code, said) == (0, "2 rounds, tau 2.00: wrote t.json and t.html\n")
    trace = decode_trace((tmp_path / "t.json").read_bytes())
    assert (trace.engine, trace.mode, trace.budget, trace.temperature, trace.seed) == (
        "tiny-k2-cpu",
        "tree",
        16,
        0.8,
        5,
    )
    assert trace.prompt_ids == (8, 8, 8) and trace.prompt_text == "#8 #8 #8"
    assert trace.rounds[0].pieces == ("#1", "#2", "#3")
    assert decode_trace(Page((tmp_path / "t.html").read_text()).scripts[0].encode()) == trace
    assert FakeEngine.loaded == (Path("bundle"), Path("weights"), None)
    assert FakeEngine.asked["speculation"] is None and FakeEngine.asked["max_new_tokens"] == 128
    assert FakeEngine.closed


@pytest.mark.parametrize(
    ("asked", "mode", "budget"),
    [
        ([], "tree", 16),
        (["--speculation", "chain"], "chain", 7),
        (["--speculation", "off"], "off", 0),
        (["--budget", "4"], "tree", 4),
    ],
)
def test_command_names_mode_and_budget(command: Any, tmp_path: Path, asked: list[str], mode: str, budget: int) -> None:
    assert command("--prompt-ids", "8", "-o", "t.json", *asked)[0] == 0
    trace = decode_trace((tmp_path / "t.json").read_bytes())
    assert (trace.mode, trace.budget) == (mode, budget)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--prompt-ids", "1"], 2, "error[T010]: nothing to write"),
        (["-o", "t.json"], 2, "error[R020]: there is no prompt"),
        (["--prompt", "a", "--prompt-ids", "1", "-o", "t.json"], 2, "--prompt and --prompt-ids are given together"),
        (["--prompt-ids", "1,x", "-o", "t.json"], 2, "'x' is no token id"),
        (["--prompt-ids", "", "-o", "t.json"], 2, "error[R001]: the prompt is empty"),
        (["--prompt-file", "none", "-o", "t.json"], 2, "cannot read the prompt: No such file"),
        (["--prompt-ids", "1", "-o", "none/t.json"], 2, "cannot write none/t.json: there is no such folder"),
        (["--prompt", "a", "-o", "t.json"], 4, "error[R021]: the checkpoint has no tokenizer.json"),
    ],
)
def test_command_says_what_is_wrong(command: Any, arguments: list[str], code: int, message: str) -> None:
    got, said = command(*arguments)
    assert got == code
    assert message in said and "help:" in said and "Traceback" not in said


def test_prompt_file_that_is_not_utf8(command: Any, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"ab\xff")
    code, said = command("--prompt-file", "p.txt", "-o", "t.json")
    assert code == 2 and "not UTF-8 at byte 2" in said


def test_command_starts_without_the_runtime() -> None:
    script = (
        "import sys, ddtreec.cli.trace; print([m for m in sys.modules if m.startswith(('torch', 'ddtreec_runtime'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
