"""What a linter cannot see: sizes, one file a kind in each room, shipped engines that check, generated/ up to date.

    python -m tools.house

Prints one line a fault and exits 1, or says what it looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ddtreec import driver
from ddtreec.artifacts.manifest import MANIFEST
from ddtreec.core.errors import DdtreecError
from ddtreec.ops import KINDS
from ddtreec.spec.load import load_engine
from ddtreec.toolchain.bundle import STAGE
from tools.golden import ENGINES

ROOT = Path(__file__).resolve().parents[1]
MODULE_LINES, TEMPLATE_LINES, SPEC_LINES = 400, 120, 200
"""Hard limits; the house aims at 300, 60 and 150."""
PAGE_TEMPLATES = "html"
"""Folder of web pages (CSS and JavaScript), which the template limit is not about."""
WITHOUT_KERNEL = {"fused", "split"}
"""`fused` runs its parts, `split` makes aliases."""
HELPERS = {"__init__", "base", "build", "cuts", "docs", "fields", "place"}
"""Modules of ddtreec/ops that are not a kind."""


def sizes() -> Iterator[str]:
    """Files above their limit."""
    for folder, pattern, limit in (
        ("ddtreec", "*.py", MODULE_LINES),
        ("runtime", "*.py", MODULE_LINES),
        ("templates", "*.j2", TEMPLATE_LINES),
        ("specs", "*.yaml", SPEC_LINES),
    ):
        for path in sorted((ROOT / folder).rglob(pattern)):
            if path.parent.name == PAGE_TEMPLATES:
                continue
            lines = len(path.read_text().splitlines())
            if lines > limit:
                yield f"{path.relative_to(ROOT)}: {lines} lines, the limit is {limit}"


def rooms() -> Iterator[str]:
    """Kinds without their file in a room, and files without a kind."""
    ops = {p.stem for p in (ROOT / "ddtreec" / "ops").glob("*.py")} - HELPERS
    kernels = {p.stem for p in (ROOT / "runtime/ddtreec_runtime/backends/cpu/kernels").glob("*.py")} - {"__init__"}
    for room, found, wanted in (("ddtreec/ops", ops, set(KINDS)), ("kernels", kernels, set(KINDS) - WITHOUT_KERNEL)):
        yield from (f"{room}: no file for the kind '{kind}'" for kind in sorted(wanted - found))
        yield from (f"{room}: {kind}.py has no kind" for kind in sorted(found - wanted))


def engines() -> Iterator[str]:
    """Shipped engines that `ddtreec check` refuses."""
    for path in sorted((ROOT / "specs" / "engines").glob("*.yaml")):
        try:
            driver.check(load_engine(path.stem, ()))
        except DdtreecError as error:
            yield f"specs/engines/{path.name}: {error.render()}"


def generated(root: Path = ROOT / "generated") -> Iterator[str]:
    """Files of generated/ that the compiler would write otherwise today; the manifest holds their digests."""
    for engine, stage in ENGINES.items():
        files = driver.build_files(load_engine(engine), stage)
        held = {p.relative_to(root / engine).as_posix(): p for p in (root / engine).rglob("*") if p.is_file()}
        for path in sorted({*files, *held} - {MANIFEST, STAGE}):
            if path not in files or path not in held or held[path].read_bytes() != files[path]:
                yield f"generated/{engine}/{path} is out of date: run `make golden`"


def main() -> None:
    """All of it."""
    faults = [*sizes(), *rooms(), *engines(), *generated()]
    if faults:
        sys.exit("\n".join(faults))
    print(f"house in order: sizes, {len(KINDS)} kinds, shipped engines, generated text")


if __name__ == "__main__":
    main()
