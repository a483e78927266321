"""The shape of an entry of the table of codes."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """One code. `rule`: what must hold; `cause`: how it usually comes to be broken; `fix`: ways out; `example`: what
    brings the message about."""

    title: str
    rule: str
    cause: str
    fix: str
    example: str
