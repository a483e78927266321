"""What a shell may offer behind the cursor: names of engines, and paths and values of --set."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem


class EngineName(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A shipped engine, or the path of a spec."""

    name = "engine"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Shipped names that begin so; files where the word looks like a path, or no name begins so."""
        from ddtreec.spec.find import is_path, shipped

        if is_path(incomplete):
            return [CompletionItem(incomplete, type="file")]
        names = [CompletionItem(name) for name in shipped("engine") if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


class Setting(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """`path=value` of --set."""

    name = "setting"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Paths of fields up to the `=`; behind it the values that are known."""
        path, equals, begun = incomplete.partition("=")
        if equals:
            return [CompletionItem(f"{path}={value}") for value in values(path) if value.startswith(begun)]
        known = {*fields(), *named(ctx.params.get("engine"))}
        return [CompletionItem(f"{name}=") for name in sorted(known) if name.startswith(path)]


ENGINE, SETTING = EngineName(), Setting()


def fields() -> Iterator[str]:
    """Every path whose names the schema fixes, as --set takes it."""
    from ddtreec.spec.fields import all_fields

    known = all_fields()
    inside = tuple(f"{path}." for path, facts in known.items() if facts.type.startswith(("a list of", "a mapping of")))
    for path, facts in known.items():
        if not path.startswith(inside) and facts.name not in ("kind", "version"):
            yield path.removeprefix("engine.")


def named(engine: object) -> Iterator[str]:
    """Paths of scalars below the names that an engine's own specs give: dims, ropes, roles of the quant."""
    from ddtreec.core.errors import DdtreecError
    from ddtreec.spec.load import load_engine

    if not isinstance(engine, str) or not engine:
        return
    try:
        found = load_engine(engine).sources
    except DdtreecError:
        return
    for kind, sources in found.items():
        for path in sources.keys:
            if kind != "engine" and len(path) > 1 and path[0] in ("dims", "ropes", "roles"):
                yield ".".join(map(str, (kind, *path)))


def values(path: str) -> list[str]:
    """What may stand behind `path=`: choices, true and false, names of specs."""
    from ddtreec.spec.fields import all_fields
    from ddtreec.spec.find import FOLDERS, KINDS, shipped

    kind = next((kind for kind in KINDS if kind == path), None)
    if kind in FOLDERS and kind != "engine":
        return list(shipped(kind))
    known = all_fields()
    facts = known.get(path) or known.get(f"engine.{path}")
    if facts is None:
        return []
    return list(facts.choices) or (["true", "false"] if facts.type == "true or false" else [])
