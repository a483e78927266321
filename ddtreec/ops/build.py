"""From the fields a spec writes to an op: every wrong field is reported, all at once."""

from __future__ import annotations

from typing import Any

from ddtreec.ops import SPEC_OPS
from ddtreec.ops.base import Op
from ddtreec.ops.fields import Fault, Names, did_you_mean
from ddtreec.ops.place import Place
from ddtreec.spec.schema import OpSpec


def read_fields(spec: OpSpec, names: Names) -> tuple[dict[str, Any], list[Fault]]:
    """The op's fields, read and with defaults filled in, and what is wrong with them. A kind that does not exist is
    one fault of the field 'op'."""
    op = SPEC_OPS.get(spec.op)
    if op is None:
        return {}, [Fault(f"there is no op '{spec.op}'", "op", did_you_mean(spec.op, SPEC_OPS), "S060")]
    declared = op.SPEC or {}
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name in spec.fields:
        if name not in declared:
            known = declared or ("id", "op", "in", "out")
            faults.append(Fault(f"{spec.op} has no field '{name}'", name, did_you_mean(name, known), "S010"))
    for name, field in declared.items():
        if name not in spec.fields:
            values[name] = field.default
            if not field.optional:
                faults.append(Fault(f"{spec.op} needs the field '{name}'", code="S011"))
            continue
        try:
            values[name] = field.read(spec.fields[name], names)
        except Fault as fault:
            faults.append(Fault(str(fault), name, fault.help, fault.code))
    for word, count, given in zip(("in", "out"), op.ARITY, (spec.inputs, spec.outputs), strict=True):
        if (count < 0 and not given) or (count >= 0 and len(given) != count):
            wanted = "at least one value" if count < 0 else f"{count} value{'s' * (count != 1)}"
            faults.append(Fault(f"{spec.op} has {wanted} under '{word}', not {len(given)}", word, code="S013"))
    return values, faults


def build(spec: OpSpec, values: dict[str, Any], place: Place) -> Op:
    """The op at its place, from values that `read_fields` read without a fault. Raises Fault."""
    return SPEC_OPS[spec.op].build(values, place)
