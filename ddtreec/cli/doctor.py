"""`ddtreec doctor`: what this machine is, and whether a bundle can run on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import schema_json

if TYPE_CHECKING:
    from ddtreec_runtime.doctor.compare import Offer

UNFIT = 5
"""Exit code where a mismatch is fatal."""


@click.command("doctor", short_help="Say what this machine is, and whether a bundle can run on it.")
@click.option("--bundle", type=click.Path(path_type=Path), help="Compare with this bundle; no weight is read.")
@click.option("--weights", type=click.Path(path_type=Path), help="Measure how fast this folder is read, 2 s at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@guarded
def doctor(bundle: Path | None, weights: Path | None, as_json: bool) -> None:
    """Describe this machine: driver, GPUs, peer access, IOMMU, NUMA, NCCL, memory, disk; and what to know about it.

    With --bundle each mismatch is called fatal (exit code 5), slow or harmless, with both values and the way out.

    \b
    Examples:
      ddtreec doctor
      ddtreec doctor --bundle generated/tiny-k2-cpu --weights tiny/target
    """
    from ddtreec_runtime.doctor.advice import advice
    from ddtreec_runtime.doctor.compare import compare, wanted
    from ddtreec_runtime.doctor.disk import measure
    from ddtreec_runtime.doctor.probe import machine
    from ddtreec_runtime.doctor.text import text, told

    asked = wanted(bundle) if bundle is not None else None
    here = machine((measure(weights),) if weights is not None else ())
    known = advice(here)
    mismatches = compare(asked, here, _offers()) if asked is not None else ()
    fatal = any(finding.level == "fatal" for finding in mismatches)
    if as_json:
        import msgspec

        data = {
            "machine": msgspec.to_builtins(here),
            "findings": msgspec.to_builtins(known),
            "bundle": None if asked is None else msgspec.to_builtins(asked),
            "mismatches": msgspec.to_builtins(mismatches),
            "ok": not fatal,
        }
        sys.stdout.write(schema_json("doctor", data))
    else:
        sys.stdout.write(text(here, known))
        if asked is not None:
            rest = told(mismatches) or ["no mismatch"]
            print("\n".join([f"bundle   {bundle}: {asked.engine}, compiled by ddtreec {asked.tool}", *rest]))
    if fatal:
        sys.exit(UNFIT)


def _offers() -> dict[str, Offer]:
    """The shipped topologies."""
    from ddtreec.spec.find import shipped
    from ddtreec.spec.load import load_spec
    from ddtreec.spec.schema import TopologySpec
    from ddtreec_runtime.doctor.compare import Offer

    offers: dict[str, Offer] = {}
    for name in shipped("topology"):
        spec = load_spec("topology", name).spec
        assert isinstance(spec, TopologySpec)
        offers[name] = Offer(spec.backend, spec.devices, spec.device.arch or "")
    return offers
