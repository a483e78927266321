"""The engine on a GPU: the calls and answers of the CPU's, and several sequences at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Call, Program, Weight
from ddtreec.core.errors import BundleError, Loc, Problem, SpecError, VerifyError
from ddtreec_runtime import checks
from ddtreec_runtime.backends.cuda.answer import Answer
from ddtreec_runtime.backends.cuda.decode import Decoder
from ddtreec_runtime.backends.cuda.device import (
    check_device,
    load_kernels,
    open_driver,
    read_table,
    telling_of_room,
)
from ddtreec_runtime.backends.cuda.drafter import DeviceDrafter
from ddtreec_runtime.backends.cuda.machine import Machine
from ddtreec_runtime.backends.cuda.memory import Holding, holdings
from ddtreec_runtime.backends.cuda.target import DeviceTarget, Hear
from ddtreec_runtime.backends.cuda.weights import layouts_of, load_weights
from ddtreec_runtime.build import Parts
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.engine import Engine, Speculation, Wish, finished
from ddtreec_runtime.generation import Generation, Job
from ddtreec_runtime.output import Output
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.sampling import SamplingParams
from ddtreec_runtime.text import Tokenizer
from ddtreec_runtime.threads import computing
from ddtreec_runtime.turns import alone
from ddtreec_runtime.weights import Checkpoint, Progress


class CudaEngine(Engine):
    """One bundle with its weights on one GPU. Use `Engine.load`."""

    def __init__(self, machine: Machine, tokenizer: Tokenizer | None):
        super().__init__(machine.bundle, parts_of(machine), [], tokenizer)
        self._machine: Machine | None = machine
        self._decoder: Decoder | None = Decoder(machine)

    # ---- the model ----

    @alone
    @computing
    def hidden_states(self, token_ids: Sequence[int], layers: Sequence[int | str]) -> Tensor:
        """See `Engine.hidden_states`. Steps run call by call; the last norm is inside the head's kernel, so for 'final'
        it is taken here, of the residual that the kernel reads."""
        ids = checks.tokens(token_ids, self.plan, "token_ids", room=0)
        target = self._fresh().target
        assert isinstance(target, DeviceTarget)
        names = [residual(layer, target.program.program, self.plan.model.layers) for layer in layers]
        chunks: list[Tensor] = []

        def keep(start: int, found: dict[str, Tensor]) -> None:
            chosen = zip(layers, names, strict=True)
            chunks.append(torch.stack([self._normed(found[n]) if at == "final" else found[n] for at, n in chosen]))

        with hearing(target, names, keep):
            for _ in target.prefill(ids, "none"):
                pass
        return torch.cat(chunks, dim=1)

    def _normed(self, x: Tensor) -> Tensor:
        """x [rows, H] after the last norm, whose weight and eps are those of the head's kernel; float32 inside."""
        machine = self._live_machine()
        call = last_norm(machine.programs["target"].program)
        weight = machine.weights[call.weights[0]].cpu().float()
        (eps,) = (float(value) for name, value in call.params.items() if name.endswith("eps") and value is not None)
        wide = x.float()
        return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight).to(x.dtype)

    # ---- text ----

    @alone
    @computing
    def generate_batch(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        speculation: Speculation | None = None,
        budget: int | None = None,
        *,
        ignore_eos: bool = False,
    ) -> list[Generation]:
        """Continue several prompts, as many at a time as the bundle has sequences (`plan.limits.sequences`) and a step
        has rows: at most 128, a whole draft block of each.

        seeds: one a prompt, by default 0 for all. Every sequence has its own length, pages, draws and tree, and gets
        the tokens that `generate` gives it, up to near-ties: attention's order of sums depends on the step. Other
        arguments and errors as `generate`; R014 for another number of seeds than prompts.
        """
        given = [0] * len(prompts) if seeds is None else list(seeds)
        if len(given) != len(prompts):
            message = f"{len(given)} seeds for {len(prompts)} prompts"
            raise SpecError(Problem("R014", message, help="give one seed a prompt, or none"))
        answers: list[Answer] = []
        for prompt, seed in zip(prompts, given, strict=True):
            params = SamplingParams(temperature, top_p, top_k, seed)
            wish = Wish(max_new_tokens, params, tuple(stop), speculation, budget, ignore_eos)
            answers.append(Answer(*self._job(prompt, wish, None)))
        most = self.decoder.most_sequences
        for begin in range(0, len(answers), most):
            self.decoder.run(answers[begin : begin + most])
        return [finished(answer.done, answer.output) for answer in answers]

    def _decode(self, job: Job, output: Output, on_round: Callable[[Round], None] | None) -> Generation:
        parts = self._fresh()
        assert isinstance(parts.target, DeviceTarget)
        if parts.target.hear is not None:
            return super()._decode(job, output, on_round)
        answer = Answer(job, output, on_round)
        self.decoder.run([answer])
        return answer.done

    # ---- looking inside ----

    @contextmanager
    def observe(self, values: Sequence[str], hear: Hear) -> Iterator[None]:
        """See `Engine.observe`. While this is open the host drives generation, step by step."""
        target = self._live().target
        assert isinstance(target, DeviceTarget)
        known = {value.id for value in target.program.program.values if value.home != "token"}
        for name in values:
            if name not in known:
                raise SpecError(Problem("R010", f"the target has no value {name!r}", help="plan.txt lists its values"))
        with hearing(target, values, hear):
            yield

    @property
    def decoder(self) -> Decoder:
        """The rounds of this engine: whether they run as graphs, and what blocked the host meanwhile."""
        self._live()
        assert self._decoder is not None
        return self._decoder

    def holdings(self) -> list[Holding]:
        """What the plan said that a rank holds, beside what is allocated, by purpose."""
        return holdings(self._live_machine())

    # ---- life ----

    def close(self) -> None:
        """See `Engine.close`. The device's memory is free afterwards."""
        if self._machine is not None:
            self.decoder.close()
            self._machine.close()
        super().close()
        self._machine = self._decoder = None

    def _live_machine(self) -> Machine:
        self._live()
        assert self._machine is not None
        return self._machine


def load(
    bundle: Bundle,
    checkpoints: Mapping[str, Checkpoint],
    needed: Sequence[Weight],
    tokenizer: Tokenizer | None,
    drafting: bool,
    progress: Progress | None = None,
) -> CudaEngine:
    """The engine of an opened bundle for a GPU; the checkpoints were audited.

    Raises BundleError: B027 no GPU, B041 it does not fit, B042 kernels for another GPU, B043 no bindings of the driver,
    B044 no kernel table, B045 more than one rank; CheckpointError as `load_weights`.
    """
    refuse_many_ranks(bundle)
    table, driver = read_table(bundle), open_driver(bundle)
    check_device(bundle, table)
    with driver.ordered(), telling_of_room(bundle.path):
        kernels = load_kernels(bundle, table, driver)
        layouts = layouts_of(bundle.plan, table)
        weights = load_weights(checkpoints, needed, layouts, bundle.plan.mesh, 0, "cuda", progress)
        return CudaEngine(Machine(bundle, kernels, driver, weights, "cuda", drafting), tokenizer)


def refuse_many_ranks(bundle: Bundle) -> None:
    """B045: collectives between GPUs are not there yet."""
    ranks = bundle.plan.mesh.ranks
    if ranks > 1:
        raise BundleError(
            Problem(
                "B045",
                f"the bundle is for {ranks} ranks; this runtime runs one rank on a GPU",
                Loc(str(bundle.path)),
                note="`ddtreec bench BUNDLE --rank 0 --synthetic` measures the kernels of one rank",
                help="compile for one device: --set topology=h200-x1; or for the ranks of a CPU: --set topology=cpu-x8",
            )
        )


def parts_of(machine: Machine) -> Parts:
    """Target and drafter as the host sees them."""
    plan, programs = machine.plan, machine.programs
    limits = plan.limits
    chunk = min(limits.chunk, programs["target"].program.max_rows)
    target = DeviceTarget(programs["target"], machine.arrays, machine.driver, chunk, limits.context, limits.page)
    if not machine.drafting or plan.drafter is None:
        return Parts(target, None)
    features = machine.kept["target"].get("features")
    if features is None:
        raise VerifyError("memory", "features", "the plan has a drafter but its target keeps no features")
    contract = plan.drafter
    drafter = DeviceDrafter(
        programs["draft_context"],
        programs["draft_block"],
        features,
        machine.arrays,
        machine.driver,
        contract.block,
        contract.mask_token,
    )
    return Parts(target, drafter)


@contextmanager
def hearing(target: DeviceTarget, values: Sequence[str], hear: Hear) -> Iterator[None]:
    """While open, the target's steps run call by call and tell of these values."""
    target.hear, target.hears = hear, tuple(values)
    try:
        yield
    finally:
        target.hear, target.hears = None, ()


def last_norm(program: Program) -> Call:
    """The call whose first weight is the last norm's."""
    return next(call for call in reversed(program.calls) if any(name.endswith("eps") for name in call.params))


def residual(layer: int | str, program: Program, layers: int) -> str:
    """Value that holds the residual after a layer; for 'final' the one that the last norm reads. R010 for another."""
    if layer == "embed":
        return next(call.outs[0] for call in program.calls if call.kernel == "embedding")
    if layer == "final":
        return last_norm(program).ins[0]
    if isinstance(layer, int) and not isinstance(layer, bool) and 0 <= layer < len(program.layer_outputs):
        return program.layer_outputs[layer]
    raise SpecError(Problem("R010", f"no layer {layer!r}", help=f"use 0 to {layers - 1}, 'embed' or 'final'"))
