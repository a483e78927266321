"""The one error shape a person sees: code, message, place, note, way out.

Every mistake a user can make ends as a `DdtreecError` that carries one or more `Problem`s. The CLI prints
them with `render` and leaves with `exit_code`; nothing else in the project prints an error.

Exit codes: 2 usage or spec, 3 fit or topology, 4 checkpoint, 5 device, toolchain or bundle,
70 a verifier found our own bug, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Loc:
    """A place in a file a person wrote. `line` and `col` count from 1; 0 means the whole file."""

    file: str
    line: int = 0
    col: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.col}" if self.col else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: what, where, the other value involved, and a way out."""

    code: str
    message: str
    loc: Loc | None = None
    source: str = ""
    note: str = ""
    help: str = ""

    def render(self) -> str:
        """The message as printed, without colour, ending without a newline."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.loc is not None:
            lines.append(f"  --> {self.loc}")
            if self.source and self.loc.line:
                number = str(self.loc.line)
                lines.append(f"   {number} | {self.source}")
                if self.loc.col:
                    lines.append(f"   {' ' * len(number)} | {' ' * (self.loc.col - 1)}^")
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class DdtreecError(Exception):
    """A mistake in what was asked, never in ddtreec itself. Carries every problem of its stage."""

    exit_code = 2

    def __init__(self, problems: Problem | Sequence[Problem]):
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(p.render() for p in self.problems))

    def render(self) -> str:
        """All problems, one after another, as text."""
        return "\n".join(p.render() for p in self.problems)


class SpecError(DdtreecError):
    """A spec file or an argument is wrong."""

    exit_code = 2


class FitError(DdtreecError):
    """The model does not divide or does not fit on the topology."""

    exit_code = 3


class CheckpointError(DdtreecError):
    """Weights are missing, damaged or of another shape than the spec says."""

    exit_code = 4


class BundleError(DdtreecError):
    """The bundle, the toolchain or the device does not match."""

    exit_code = 5


class VerifyError(Exception):
    """A verifier rejected what a pass made: a bug of ours. Names the pass and the node."""

    exit_code = 70

    def __init__(self, after: str, node: str, reason: str):
        self.after, self.node, self.reason = after, node, reason
        super().__init__(f"internal error[V001]: after pass '{after}': {node}: {reason}")
