"""Random damage to specs: to the text (bytes, lines, indents) and to the tree (keys, values, lists)."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ddtreec.ops.docs import op_schemas
from ddtreec.spec.fields import all_fields

SIGNS = (
    ":", "-", ",", "[", "]", "{", "}", "&", "*", "!", "|", ">", "'", '"', "%", "@", "`", "#", "?", "\t", "\n", "\\",
    "<<", "---", "...", "~", " ", "0", "é", "😀", "\x00", "\x1b", "\ufeff", "\u2028", "\x85", "&a ", "*a", ": ", " #",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, "", "x", "auto", "1", "NaN", "{layer}", "a" * 5000, -1, 0, 1, 3, 7, 2**31, 2**63, 10**30,
    -(10**30), 0.5, 1e308, 5e-324, -0.0, [], {}, [None], [[]], {"x": 1}, ["x", "x"], [0] * 1000, {"extends": "tiny-k2"},
)  # fmt: skip
FREE = ("dims", "ropes", "blocks", "roles")
"""Mappings whose keys are names of one's own."""

Steps = tuple[str | int, ...]


@st.composite
def damaged_text(draw: st.DrawFn, text: str) -> bytes:
    """The text after one to three changes of bytes or lines."""
    data = text.encode()
    for _ in range(draw(st.integers(1, 3))):
        data = _damage(draw, data)
    return data


def _damage(draw: st.DrawFn, data: bytes) -> bytes:
    kind = draw(st.sampled_from(["flip", "insert", "cut", "end", "drop", "twice", "indent", "dedent", "swap"]))
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "flip" and data:
        return data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
    if kind == "insert":
        return data[:at] + draw(st.sampled_from(SIGNS)).encode() + data[at:]
    if kind == "cut":
        return data[:at] + data[at + draw(st.integers(1, 40)) :]
    if kind == "end":
        return data[:at]
    lines = data.split(b"\n")
    i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    if kind == "drop":
        del lines[i]
    elif kind == "twice":
        lines.insert(j, lines[i])
    elif kind == "indent":
        lines[i] = draw(st.sampled_from([b" ", b"  ", b"\t", b"- "])) + lines[i]
    elif kind == "dedent":
        lines[i] = lines[i][min(draw(st.integers(1, 4)), len(lines[i]) - len(lines[i].lstrip())) :]
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def paths(data: Any, here: Steps = ()) -> list[Steps]:
    """Every path into a tree, the root not among them."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path for key, item in items for path in ((*here, key), *paths(item, (*here, key)))]


def at(data: Any, path: Steps) -> Any:
    """What lies at `path`."""
    for step in path:
        data = data[step]
    return data


@st.composite
def damaged_tree(draw: st.DrawFn, tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with one to three values replaced, taken from elsewhere, removed, or repeated."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        known = paths(tree)
        if not known:
            break
        path = draw(st.sampled_from(known))
        parent, key = at(tree, path[:-1]), path[-1]
        kind = draw(st.sampled_from(["value", "value", "other", "drop", "twice", "deep"]))
        if kind == "value":
            parent[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif kind == "other":
            parent[key] = copy.deepcopy(at(tree, draw(st.sampled_from(known))))
        elif kind == "drop":
            del parent[key]
        elif kind == "twice" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            for _ in range(draw(st.integers(1, 70))):
                parent[key] = [parent[key]]
    return tree


@cache
def known_words() -> frozenset[str]:
    """Every key that some mapping of some spec knows."""
    ops = {field for schema in op_schemas().values() for field in schema["properties"]}
    return frozenset({"extends", *ops, *(facts.name for facts in all_fields().values())})


@st.composite
def strange_key(draw: st.DrawFn, tree: dict[str, Any]) -> tuple[dict[str, Any], Steps]:
    """The tree with one key renamed or one added, at a place where the spec says which keys there are; and its path."""
    tree = copy.deepcopy(tree)
    fixed = [path for path in paths(tree) if isinstance(path[-1], str) and (len(path) < 2 or path[-2] not in FREE)]
    path = draw(st.sampled_from(fixed))
    parent, key = at(tree, path[:-1]), str(path[-1])
    letters = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
    word = draw(st.one_of(letters, st.sampled_from([key + "s", key[1:] or "q", key.upper(), key + "_", "x" + key])))
    if word in known_words() or word in parent:
        word = f"q_{key}"
    if draw(st.booleans()):
        items = [(word if k == key else k, v) for k, v in parent.items()]
        parent.clear()
        parent.update(items)
    else:
        parent[word] = draw(st.sampled_from([None, 1, "x", [], {}]))
    return tree, (*path[:-1], word)
