"""Public bug reports of engines like this one, by the number they have in the tests: what a person would type, and the
files that they would have. The text that they get is in `texts/`.

`files` are written into an empty folder, which is the working folder. `keep` picks the lines of the output that matter
where the rest belongs to other tests. Numbers 26 to 34 are about bundles: see test_bundles.py. Number 14 (another
process holds the memory) is about machines and also there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BIG = "kimi-k2.6-rtx-pro-6000-x8-pcie"


@dataclass(frozen=True)
class Case:
    """One command and the files it meets."""

    name: str
    args: str
    files: dict[str, str] = field(default_factory=dict)
    keep: str = ""


def engine(body: str, base: str = "tiny-k2-cpu", name: str = "mine") -> str:
    return f"kind: engine\nversion: 1\nname: {name}\nextends: {base}\n{body}"


ENGINE = """\
kind: engine
version: 1
name: mine
model: tiny-k2
quant: int4-g32-experts
topology: cpu
dtype: float32
limits: {context: 1024}
"""

THIRTEEN = "limits.context=262144 --set limits.sequences=8"

CASES = (
    # what does not divide
    Case("01-ep3-and-tp3-together", "check deepseek.yaml", {"deepseek.yaml": engine(
        "layout:\n  attention: tp\n  experts: ep3xtp1\ntopology: three.yaml\n", "deepseek-v3-rtx-pro-6000-x8-pcie"),
        "three.yaml": "kind: topology\nversion: 1\nname: three\nextends: rtx-pro-6000-x4-pcie\ndevices: 3\n"}),
    Case("02-64-heads-on-6-devices", f"check {BIG} --set topology.devices=6"),
    Case("03-40-heads-on-6-devices", f"check {BIG} --set model.dims.heads=40 --set topology.devices=6 "
         "--set layout.attention=tp"),
    Case("04-layout-of-the-planner", f"plan {BIG}", keep=r"^layout|^  (attention|a_proj|mlp|experts|vocab|drafter)  +"),
    Case("05-drafter-heads-against-tp-8", f"check {BIG} --set drafter.dims.kv_heads=12 --set layout.drafter=tp"),
    Case("05-drafter-left-to-the-planner", f"check {BIG} --set drafter.dims.kv_heads=4"),
    Case("06-drafter-on-one-device", f"check {BIG} --set layout.drafter=single"),
    # groups of scales against ranks
    Case("07-group-512-over-tp-8", f"check {BIG} --set quant.roles.experts.group=512 --set layout.experts=ep1xtp8"),
    Case("08-which-layer-which-sizes-what-to-do", "check mine.yaml", {"mine.yaml": engine(
        "layout: {experts: ep1xtp8}\ntopology: cpu-x8\n")}),
    Case("09-group-16-and-232-a-rank", f"check {BIG} --set quant.roles.experts.group=16 "
         "--set model.dims.expert_inter=1856 --set layout.experts=ep1xtp8"),
    Case("10-group-that-does-not-divide", f"check {BIG} --set quant.roles.experts.group=48"),
    Case("12-29-groups", f"check {BIG} --set model.dims.expert_inter=928 --set layout.experts=ep4xtp2"),
    # memory
    Case("13-context-that-does-not-fit", f"check {BIG} --set {THIRTEEN}"),
    Case("15-nothing-but-config-json", "check k26/engine.yaml --set topology=rtx-pro-6000-x4-pcie"),
    Case("16-drafter-cache-of-its-own", f"plan {BIG} --set limits.context=262144", keep="cache|largest"),
    Case("17-needs-and-has", f"plan {BIG} --set topology=rtx-pro-6000-x4-pcie"),
    # specs and commands
    Case("20-five-typos", "check mine.yaml", {"mine.yaml": ENGINE.replace("dtype", "dtyp").replace(
        "context: 1024", "contxt: 1024, chunks: 64") + "layouts: {}\nnmae: x\n"}),
    Case("21-right-key-wrong-block", "check mine.yaml", {"mine.yaml": ENGINE + "seed: 3\nbudget: 8\n"}),
    Case("22-tree-under-model", "check mine.yaml", {
        "mine.yaml": ENGINE.replace("model: tiny-k2", "model: model.yaml"),
        "model.yaml": "kind: model\nversion: 1\nname: m\nextends: tiny-k2\ntree: {budget: 8}\n"}),
    Case("22-mapping-instead-of-a-name", "check mine.yaml", {
        "mine.yaml": ENGINE.replace("model: tiny-k2", "model: {name: tiny-k2, tree: ddtree-8}")}),
    Case("23-one-message-a-problem", "check mine.yaml --set limits.context=-1", {
        "mine.yaml": ENGINE.replace("float32", "fp32").replace("cpu", "cpu-x9")}),
    Case("24-error-in-the-third-overlay", "check third.yaml", {
        "first.yaml": engine("limits: {chunk: 32}\n"),
        "second.yaml": engine("limits: {page: 8}\n", "./first.yaml"),
        "third.yaml": engine("limits:\n  context: 4096\n", "./second.yaml")}),
    Case("24-error-below-the-third-overlay", "check third.yaml", {
        "first.yaml": engine("limits: {chunk: 2000}\n"),
        "second.yaml": engine("limits: {page: 8}\n", "./first.yaml"),
        "third.yaml": engine("limits: {context: 512}\n", "./second.yaml")}),
    Case("25-format-gcc", "check mine.yaml --format gcc", {
        "mine.yaml": ENGINE.replace("float32", "fp32") + "budget: 8\n"}),
    Case("25-format-json", "check mine.yaml --format json", {"mine.yaml": ENGINE.replace("float32", "fp32")}),
    Case("25-gcc-warnings", "check tiny-k2-cpu-x2 --set topology.devices=3 --format gcc"),
    Case("30-architecture-nobody-knows", "init k3 -o out", {
        "k3/config.json": '{"architectures": ["KimiK3ForCausalLM"], "model_type": "kimi_k3"}'}),
    Case("30-op-nobody-knows", "check mine.yaml --set model.blocks.attention.ops.mla.op=mla3_attention", {
        "mine.yaml": ENGINE}),
    Case("version-of-the-future", "check mine.yaml", {"mine.yaml": ENGINE.replace("version: 1", "version: 2")}),
    Case("version-nought", "check mine.yaml", {"mine.yaml": ENGINE.replace("version: 1", "version: 0")}),
    Case("version-as-text", "check mine.yaml", {"mine.yaml": ENGINE.replace("version: 1", 'version: "1.0"')}),
    Case("no-version", "check mine.yaml", {"mine.yaml": ENGINE.replace("version: 1\n", "")}),
    Case("no-such-command", "chekc tiny-k2-cpu"),
)  # fmt: skip

SWEEP = tuple(
    (group, tp, f"check tiny-k2-cpu-x2 --set model.dims.expert_inter=640 --set quant.roles.experts.group={group} "
     f"--set topology.devices={tp} --set layout.experts=ep1xtp{tp} --format gcc")
    for group in (16, 32, 64, 128) for tp in (1, 2, 4, 8)
)  # fmt: skip
"""Number 11: every group size over every number of ranks, of experts 640 wide (number 7 in its own sizes)."""
