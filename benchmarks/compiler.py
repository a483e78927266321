"""How long the compiler takes, as a person feels it: whole processes, interpreter start included.

    python -m benchmarks.compiler

Limits (the project's own): `check` under 1 s, `plan` of Kimi K2.6 on 8 GPUs under 3 s, `compile --to src` under 20 s.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from benchmarks.record import median_seconds, table, write

K26 = "kimi-k2.6-rtx-pro-6000-x8-pcie"
TINY = "tiny-k2-cpu"


def main() -> None:
    """Measure, print, write `results/compiler.json`; exit 1 when a limit is missed."""

    def command(*args: str) -> float:
        line = [sys.executable, "-m", "ddtreec.cli.main", *args]
        return median_seconds(lambda: subprocess.run(line, check=True, capture_output=True), times=5)

    with tempfile.TemporaryDirectory() as out:
        cases = [
            ("check tiny", 1.0, command("check", TINY)),
            ("check K2.6 x8", 1.0, command("check", K26)),
            ("plan K2.6 x8", 3.0, command("plan", K26)),
            ("compile K2.6 x8 --to src", 20.0, command("compile", K26, "--to", "src", "-o", f"{out}/src")),
            ("compile K2.6 x8", 20.0, command("compile", K26, "-o", f"{out}/bundle")),
            ("compile tiny", 3.0, command("compile", TINY, "-o", f"{out}/tiny")),
        ]
    rows = [(name, f"{taken:.2f} s", f"{limit:.0f} s", f"{taken / limit:.0%}") for name, limit, taken in cases]
    print(table(("command", "median of 5", "limit", "used"), rows))
    write(
        "compiler",
        "python -m benchmarks.compiler",
        {"cases": [{"name": n, "limit_s": limit, "median_s": round(taken, 3)} for n, limit, taken in cases]},
    )
    missed = [name for name, limit, taken in cases if taken > limit]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
