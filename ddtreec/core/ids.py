"""Names: how an id of the graph is spelt as a Python attribute in the step program, and as a file name."""

from __future__ import annotations

import keyword


def attribute(identifier: str) -> str:
    """'L03.moe.experts' to 'L03_moe_experts': dots become underscores, a Python keyword gets one behind it.

    The step program and the runtime both spell buffers and weights with this. Raises ValueError where no Python
    name comes out.
    """
    name = identifier.replace(".", "_")
    if keyword.iskeyword(name):
        name += "_"
    if not name.isidentifier():
        raise ValueError(f"'{identifier}' cannot be spelt as a Python name")
    return name
