"""The routed experts of an MoE layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need, need_rows
from ddtreec.ops.cuts import cut, cut_experts, divides
from ddtreec.ops.fields import Field, Size, Tensor, Word
from ddtreec.ops.place import ROLES, Place


@dataclass(frozen=True, slots=True)
class Experts(Op):
    """x [rows, dim], ids [rows, k] int64, w [rows, k] float32 -> y [rows, dim] = sum_j w_j E_ids_j(x).

    E(x) = down (silu(gate x) * up x). Weights: gate_up [experts, 2 inter, dim] (gate first), down [experts, dim,
    inter]. Over ranks: whole experts dealt to ep coordinates, the `inter` of each cut over tp coordinates; y is a
    partial sum. `experts` and `inter` are those of one rank, `total` experts of all.
    """

    kind: ClassVar[str] = "experts"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "role": Word(words=ROLES),
        "experts": Size(),
        "dim": Size(),
        "inter": Size(),
        "gate": Tensor(per_expert=True),
        "up": Tensor(per_expert=True),
        "down": Tensor(per_expert=True),
    }
    ARITY: ClassVar[tuple[int, int]] = (3, 1)
    total: int
    experts: int
    dim: int
    inter: int
    gate_up: Weight
    down: Weight
    question: str = ""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Experts:
        role, n, dim, inter = (fields[k] for k in ("role", "experts", "dim", "inter"))
        gate_up = place.weight(
            role,
            {"gate": fields["gate"], "up": fields["up"]},
            (inter, dim),
            suffix=".gate_up",
            shape=(n, 2 * inter, dim),
            experts=n,
        )
        down = place.weight(
            role, {"down": fields["down"]}, (dim, inter), suffix=".down", shape=(n, dim, inter), experts=n
        )
        return cls(n, n, dim, inter, gate_up, down, place.question(role))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        x, ids, w = ins
        need_rows(x, (self.dim,), "x")
        need(
            ids.dtype == "int64" and len(ids.shape) == 2, lambda: f"'ids' is {ids}, but what a router gives is expected"
        )
        need(w.dtype == "float32" and w.shape == ids.shape, lambda: f"'w' is {w}, but what a router gives is expected")
        return (x,)

    def weights(self) -> tuple[Weight, ...]:
        return self.gate_up, self.down

    def params(self) -> dict[str, Param]:
        dealt = self.gate_up.expert_shard is not None
        return {"first_per": self.experts if dealt else 0, "coord": "ep" if dealt else "rank"}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        whole = Strategy(("R", "R", "R"), ("R",), self, self.question, "replicated" if self.question else "")
        answer = f"ep{mesh.ep}xtp{mesh.tp}"
        if not self.question or self.why_not(answer, mesh):
            return (whole,)
        local = replace(
            self,
            experts=self.experts // mesh.ep,
            inter=self.inter // mesh.tp,
            gate_up=cut(cut_experts(self.gate_up, mesh.ep), 0, mesh.tp, "tp", lead=1),
            down=cut(cut_experts(self.down, mesh.ep), 1, mesh.tp, "tp", lead=1),
        )
        return (whole, Strategy(("R", "R", "R"), ("P",), local, self.question, answer))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        if answer != f"ep{mesh.ep}xtp{mesh.tp}":
            return ""
        if self.total % mesh.ep:
            return f"{self.total} experts do not divide by ep {mesh.ep}"
        if not divides(self.inter, mesh.tp, self.down.group):
            group = f" in INT4 groups of {self.down.group}" if self.down.group else ""
            return f"the expert width {self.inter} does not divide{group} by tp {mesh.tp}"
        return ""

    def distinct(self, rows: int, top_k: int) -> float:
        """Experts that `rows` rows are expected to need on the rank that needs the most, for which all others wait;
        rows choose independently and uniformly. With one group of ranks E (1 - (1 - k/E)^rows)."""
        chance = 1.0 - (1.0 - top_k / self.total) ** rows
        groups = self.total // self.experts
        return self.experts * chance if groups == 1 else most_of(self.experts, chance, groups)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        """Bytes are those of the busiest rank, FLOPs those of the mean one."""
        top_k = ins[1].tail[0]
        distinct = self.distinct(at.rows, top_k) if at.distinct is None else at.distinct
        read = distinct / self.experts * (self.gate_up.bytes + self.down.bytes)
        pairs = at.rows * top_k * self.experts / self.total
        return Cost(read, 0.0, self.traffic(ins, at), 2.0 * pairs * 3 * self.dim * self.inter)


def most_of(count: int, chance: float, groups: int) -> float:
    """Expected maximum over `groups` independent binomial counts, each of `count` trials that succeed by `chance`."""
    if chance >= 1.0:
        return float(count)
    term = (1.0 - chance) ** count
    below, expected = term, 1.0 - term**groups
    for successes in range(1, count):
        term *= (count - successes + 1) / successes * chance / (1.0 - chance)
        below = min(1.0, below + term)
        expected += 1.0 - below**groups
    return expected
