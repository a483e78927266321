"""Where an op of a spec stands when it is built: its node id and layer, and the facts its weights need. Also the roles
and the layout questions that they answer to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ddtreec.artifacts.plan import Weight, WeightPart
from ddtreec.ops.fields import Fault
from ddtreec.spec.schema import Packing, RopeSpec

QUESTIONS = ("attention", "a_proj", "mlp", "experts", "vocab", "drafter")
"""The layout questions, as in the `layout` of an engine spec."""

ROLES = (*QUESTIONS, "router")
"""What a weight is for: a row of the quant spec and the layout question it answers to (the router answers to none)."""

PLAIN_ROLES = tuple(role for role in ROLES if role != "experts")
"""Roles of one matrix. The answers of `experts` (ep2xtp4) say how a set of them is dealt out."""

DENSE_BYTES = 2
"""Checkpoints of the family store dense tensors in bfloat16."""


@dataclass(frozen=True, slots=True)
class Place:
    """`node` is the id ('L03.attention.q_b'), `layer` the layer number or -1 outside layers, `repeated` whether the
    block runs in more than one layer. `shared` holds the target's weights a drafter may use, by op kind; None where
    the target itself could not be read."""

    node: str
    layer: int
    store: Literal["target", "drafter"]
    prefix: str = ""
    repeated: bool = False
    roles: Mapping[str, Packing] = field(default_factory=dict[str, Packing])
    ropes: Mapping[str, RopeSpec] = field(default_factory=dict[str, RopeSpec])
    shared: Mapping[str, Weight] | None = field(default_factory=dict[str, Weight])
    known: dict[Weight, Weight] = field(default_factory=dict[Weight, Weight])
    """Weights made so far, by content: what is named twice (tied, or in both drafter programs) is held once."""

    def question(self, role: str) -> str:
        """The layout question a weight of this role answers to; '' if it is always replicated."""
        if role not in QUESTIONS or (role == "drafter" and self.store == "target"):
            return ""
        return role if self.store == "target" or role == "vocab" else "drafter"

    def table(self, name: str) -> str:
        """Name of a rope table in the plan, where tables of the target and of the drafter stand side by side."""
        return name if self.store == "target" else f"draft.{name}"

    def tensor(self, template: str, field_name: str) -> str:
        """The checkpoint name; `{expert}` stays. Raises Fault where `{layer}` is missing or has no meaning."""
        if "{layer}" in template and self.layer < 0:
            raise Fault("{layer} stands outside the layers, where it has no number", field_name, code="S042")
        if "{layer}" not in template and self.repeated:
            hint = "write {layer} where the layer number stands"
            raise Fault("every layer would read this one tensor", field_name, hint, "S042")
        return self.prefix + template.replace("{layer}", str(self.layer))

    def weight(
        self,
        role: str,
        tensors: Mapping[str, str],
        dims: tuple[int, ...],
        *,
        suffix: str = "",
        shape: tuple[int, ...] = (),
        experts: int = 0,
        precision: Literal["compute", "float32"] = "compute",
        element: int = DENSE_BYTES,
    ) -> Weight:
        """A whole weight of the tensors in `tensors` (field to template), each seen as `dims` and concatenated along
        rows. Matrices of a role that the quant spec packs are int4. `element`: bytes of a dense element."""
        parts = tuple(WeightPart(self.tensor(t, name), dims) for name, t in tensors.items())
        rows, inputs = dims[0], dims[len(dims) - 1]
        packing = self.roles.get(role, Packing(packing="dense")) if len(dims) > 1 else Packing(packing="dense")
        group = 0
        if packing.packing == "int4":
            group = packing.group or 32
            if inputs % group:
                raise Fault(
                    f"INT4 groups of {group} do not divide the {inputs} inputs of role '{role}'", next(iter(tensors))
                )
        whole = shape or (rows * len(parts), *dims[1:])
        elements = math.prod(whole)
        weight = Weight(
            id="",
            role=role,
            store=self.store,
            parts=parts,
            shape=whole,
            packing=packing.packing,
            group=group,
            product=packing.product if group else "exact",
            precision=precision,
            experts=experts,
            bytes=elements // 2 + elements // group * 2 if group else elements * element,
        )
        return self.known.setdefault(weight, msgspec.structs.replace(weight, id=self.node + suffix))
