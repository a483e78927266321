"""The public face: load a bundle and its weights, ask for logits, hidden states, trees, drafts and text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Plan
from ddtreec.core.errors import BundleError, Problem, SpecError
from ddtreec_runtime import checks
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.backends.cpu.prepare import prepare
from ddtreec_runtime.build import Parts, build
from ddtreec_runtime.bundle import Bundle, open_bundle
from ddtreec_runtime.generation import Generation, Job, run_job
from ddtreec_runtime.listen import recorded
from ddtreec_runtime.output import Output
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.sampling import SamplingParams
from ddtreec_runtime.state import StepState, causal
from ddtreec_runtime.text import Tokenizer
from ddtreec_runtime.threads import automatic, computing
from ddtreec_runtime.tree import Tree
from ddtreec_runtime.turns import alone
from ddtreec_runtime.weights import Progress, audit, load_all, read_checkpoint

Speculation = Literal["tree", "chain", "off"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass(frozen=True, slots=True)
class Wish:
    """How to generate, as the caller says it."""

    max_new_tokens: int
    params: SamplingParams
    stop: tuple[str, ...]
    speculation: str | None
    budget: int | None
    ignore_eos: bool


class Engine:
    """One bundle with its weights, ready to run one sequence at a time; every call starts afresh.

    A call while another runs, from a thread or from a listener, is refused: SpecError R016.

    Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        bundle: Bundle,
        parts: Parts,
        weights: list[dict[str, Tensor]],
        tokenizer: Tokenizer | None,
        threads: int = 1,
    ):
        """Use `Engine.load`."""
        self.bundle = bundle
        self.tokenizer = tokenizer
        """The checkpoint's tokenizer, None where it has no tokenizer.json."""
        self.threads = threads
        """CPU threads of every call. Torch's own number, which belongs to the process, is put back afterwards."""
        self.warnings: tuple[str, ...] = ()
        """What is strange in the checkpoints and harmless if it is meant: tensors of the model that nothing reads."""
        self.turn = threading.Lock()
        """Held during a call."""
        self._parts: Parts | None = parts
        self._weights = weights

    @classmethod
    def load(
        cls,
        bundle_dir: str | Path,
        weights_dir: str | Path,
        drafter_dir: str | Path | None = None,
        device: str = "auto",
        dtype: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Engine:
        """Open a bundle and load the weights it needs.

        weights_dir: Hugging Face directory of the target; drafter_dir: of the DFlash drafter, None loads no drafter and
        leaves speculation off. device: 'auto', 'cpu' or 'cuda'; a bundle runs on the kind it was compiled for, so this
        only refuses another. dtype: 'float32', 'bfloat16' or 'float64' for activations, caches and weights, by default
        the one the bundle was planned for, on a GPU no other. progress: called as (bytes done, bytes in
        all, weight id). threads: CPU threads to compute with, by default what the plan's matrices are worth (see
        `ddtreec_runtime.threads`): one for small models, at most torch's own number.

        Raises BundleError (B02x: not a bundle, changed, another version; B027: its device is not here),
        CheckpointError (K0xx: tensors missing, damaged, of another shape), SpecError (R009: unknown dtype or device,
        threads below 1).
        """
        checks.device(device)
        checks.threads(threads)
        bundle = open_bundle(bundle_dir)
        checks.backend(bundle, device)
        plan = bundle.plan
        compute = DTYPES[checks.dtype(dtype or plan.dtype, DTYPES if plan.backend == "cpu" else {plan.dtype: None})]
        if drafter_dir is not None and plan.drafter is None:
            raise SpecError(checks.no_drafter_planned(str(drafter_dir)))
        checkpoints = {"target": read_checkpoint(Path(weights_dir))}
        if drafter_dir is not None:
            checkpoints["drafter"] = read_checkpoint(Path(drafter_dir))
        needed = tuple(w for w in plan.weights if w.store in checkpoints)
        strange = [line for store, checkpoint in checkpoints.items() for line in audit(checkpoint, needed, store)]
        tokenizer = Tokenizer.from_dir(weights_dir)  # if it is broken, not after an hour of loading
        if plan.backend == "cuda":
            from ddtreec_runtime.backends.cuda.engine import load  # here alone: it needs a GPU and its bindings

            engine = load(bundle, checkpoints, needed, tokenizer, drafter_dir is not None, progress)
            engine.warnings = tuple(strange)
            return engine
        weights = load_all(checkpoints, needed, plan.mesh, compute, progress)
        programs = plan.programs if drafter_dir is not None else [p for p in plan.programs if p.name == "target"]
        with torch.inference_mode():
            prepare(programs, weights)
            parts = build(bundle, weights, compute, drafting=drafter_dir is not None)
        count = threads or automatic(plan, compute.itemsize, torch.get_num_threads())
        engine = cls(bundle, parts, weights, tokenizer, count)
        engine.warnings = tuple(strange)
        return engine

    # ---- facts ----

    @property
    def plan(self) -> Plan:
        """The plan of the bundle: sizes, limits, layout."""
        return self.bundle.plan

    @property
    def drafts(self) -> bool:
        """Whether a drafter is loaded."""
        return self._live().drafter is not None

    # ---- the model ----

    @alone
    @computing
    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """Next-token logits after every token: [T, V] in float32 or the engine's dtype, the wider.

        Raises SpecError: R001 no tokens, R002 more than the context, R003 an id outside the vocabulary.
        """
        ids = checks.tokens(token_ids, self.plan, "token_ids", room=0)
        target = self._fresh().target
        return torch.cat([logits.clone() for _, logits in target.prefill(ids, "all")])

    @alone
    @computing
    def hidden_states(self, token_ids: Sequence[int], layers: Sequence[int | str]) -> Tensor:
        """Residual stream after each asked layer: [len(layers), T, H] in the engine's dtype.

        layers: 0-based layer numbers, 'embed' (before the first layer) or 'final' (after the last norm). Runs the
        plan's calls with all values kept, so it is slower than `logits`. Raises SpecError as `logits` does, R010 for a
        layer that is not there.
        """
        ids = checks.tokens(token_ids, self.plan, "token_ids", room=0)
        parts = self._fresh()
        program = parts.target.program
        names = [checks.layer_value(layer, program.program, self.plan) for layer in layers]
        chunks: list[Tensor] = []
        for begin in range(0, len(ids), parts.target.chunk):
            part = ids[begin : begin + parts.target.chunk]
            start, rows = parts.target.committed, len(part)
            inputs = {"tokens": torch.tensor(part, dtype=torch.int32)}
            place = parts.target.table.place(rows)
            for state in program.states:
                state.begin(
                    inputs, torch.arange(start, start + rows), committed=start, hidden=causal(rows), placement=place
                )
            env = run_calls(program.program.values, program.program.calls, self._weights, program.states)[0]
            parts.target.commit(range(rows))
            chunks.append(torch.stack([env[name] for name in names]) if names else torch.empty(0, rows, 0))
        return torch.cat(chunks, dim=1)

    @alone
    @computing
    def tree_logits(self, prefix_ids: Sequence[int], node_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Next-token logits at every node of a token tree behind a prefix: [N, V], of the dtype of `logits`.

        prefix_ids: committed tokens, may be empty. node_ids: token of every node, node 0 the root (the token right
        behind the prefix); parents: parent of every node, parents[0] = -1 and parents[i] < i. A node sees the prefix,
        its ancestors and itself, and stands at position len(prefix) + depth.

        Raises SpecError: R001..R003 as `logits`, R008 for parents that make no tree or more nodes than a step takes.
        """
        nodes = checks.tokens(node_ids, self.plan, "node_ids", room=0)
        prefix = checks.tokens(prefix_ids, self.plan, "prefix_ids", room=len(nodes)) if len(prefix_ids) else []
        parts = self._fresh()
        tree = checks.tree(nodes, parents, min(parts.target.max_rows, parts.target.max_out_rows))
        for _ in parts.target.prefill(prefix, "none"):
            pass
        depth = torch.tensor([0, *tree.depths.tolist()])
        hidden = torch.from_numpy(~tree.visibility).unsqueeze(1) if len(nodes) > 1 else None
        return parts.target.step(nodes, len(prefix) + depth, hidden).clone()

    @alone
    @computing
    def draft_logits(self, token_ids: Sequence[int]) -> Tensor:
        """What the drafter guesses behind these tokens: [block - 1, V], of the dtype of `logits`.

        token_ids: the last one is the anchor, those before it are context. Row j scores the token j + 1 places behind
        the anchor. Raises SpecError as `logits` does, R001 for fewer than two tokens, R005 without a drafter.
        """
        ids = checks.tokens(token_ids, self.plan, "token_ids", room=0, least=2)
        parts = self._fresh()
        if parts.drafter is None:
            raise SpecError(checks.no_drafter(self.plan))
        for places, _ in parts.target.prefill(ids[:-1], "none"):
            parts.drafter.extend(range(len(places)))
        return parts.drafter.draft(ids[-1]).clone()

    # ---- text ----

    def check_prompt(self, prompt_ids: Sequence[int]) -> list[int]:
        """The ids as `generate` takes them. Raises SpecError R001..R003 as it does."""
        return checks.tokens(prompt_ids, self.plan, "the prompt", room=1)

    @alone
    @computing
    def generate(
        self,
        prompt_ids: Sequence[int],
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        stop: Sequence[str] = (),
        speculation: Speculation | None = None,
        budget: int | None = None,
        on_tokens: Callable[[list[int], str], None] | None = None,
        *,
        ignore_eos: bool = False,
        on_round: Callable[[Round], None] | None = None,
    ) -> Generation:
        """Continue a prompt. The output is the target's own: speculation changes the speed, never the law of the text.

        prompt_ids: ids [P], P >= 1. max_new_tokens: fewer come out when the context (plan.limits.context tokens of
        prompt and output) is full. temperature 0 takes the most probable token; above, tokens are drawn with
        draws that depend on seed and absolute position alone. stop: strings that end the text, needs a tokenizer.
        speculation: 'tree', 'chain' or 'off', by default what the bundle says, 'off' without a drafter. budget: tree
        nodes besides the root, by default and at most the plan's. on_tokens: called with every run of committed ids and
        the text it makes final. ignore_eos: go on behind the model's stop tokens. on_round: called with every round's
        record.

        Raises SpecError: R001 empty prompt, R002 longer than the context, R003 id outside the vocabulary, R004 budget,
        R005 speculation without a drafter, R006 max_new_tokens, R007 stop strings without a tokenizer, R011..R014
        sampling, R102 empty stop string; NonFiniteLogits (R015) when the target's logits are not numbers.
        """
        params = SamplingParams(temperature, top_p, top_k, seed)
        asked = Wish(max_new_tokens, params, tuple(stop), speculation, budget, ignore_eos)
        job, output = self._job(prompt_ids, asked, on_tokens)
        return finished(self._decode(job, output, on_round), output)

    def _job(
        self, prompt_ids: Sequence[int], asked: Wish, on_tokens: Callable[[list[int], str], None] | None
    ) -> tuple[Job, Output]:
        """A checked request, and what its tokens become."""
        plan, drafting = self.plan, self._live().drafter is not None
        prompt = self.check_prompt(prompt_ids)
        mode = checks.speculation(asked.speculation, plan, drafting, asked.budget)
        nodes = checks.budget(asked.budget, plan, mode)
        limit = min(checks.new_tokens(asked.max_new_tokens), plan.limits.context - len(prompt))
        stops = checks.stops(asked.stop, self.tokenizer)
        output = Output(self.tokenizer, () if asked.ignore_eos else plan.model.eos, stops, on_tokens)
        return Job(prompt, limit, asked.params, plan.tree, mode, nodes, heed_stops=not asked.ignore_eos), output

    def _decode(self, job: Job, output: Output, on_round: Callable[[Round], None] | None) -> Generation:
        """Runs a job to its end; `output` gets the tokens as they are committed."""
        parts = self._fresh()
        return run_job(job, parts.target, parts.drafter, output.accept, recorded(on_round, job.params))

    # ---- looking inside ----

    @contextmanager
    def observe(self, values: Sequence[str], hear: Callable[[int, dict[str, Tensor]], None]) -> Iterator[None]:
        """While this is open, `hear` gets a copy of these values of every step of the target, prefill and verify alike.

        values: ids as in plan.json, e.g. 'L03.moe.ids'; shapes there, rows being those of the step. hear: called as
        (absolute position of the first row, value by id), with rank 0's. Steps then run call by call, slower and with
        the same results. Raises SpecError R010 for a value that the target does not have.
        """
        program = self._live().target.program
        known = {value.id for value in program.program.values if value.home != "token"}
        for name in values:
            if name not in known:
                raise SpecError(Problem("R010", f"the target has no value {name!r}", help="plan.txt lists its values"))

        def watch(state: StepState, found: Mapping[str, Tensor]) -> None:
            hear(state.committed, {name: found[name].clone() for name in values})

        program.watch = watch
        try:
            yield
        finally:
            program.watch = None

    # ---- life ----

    def close(self) -> None:
        """Let go of weights and caches. Using the engine afterwards raises BundleError B029."""
        self._parts = None
        self._weights = []

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _live(self) -> Parts:
        if self._parts is None:
            raise BundleError(Problem("B029", "this engine is closed", help="load it again with Engine.load"))
        return self._parts

    def _fresh(self) -> Parts:
        """The parts, with no sequence in them."""
        parts = self._live()
        parts.target.reset()
        if parts.drafter is not None:
            parts.drafter.reset()
        return parts


def finished(done: Generation, output: Output) -> Generation:
    """The generation with its text, and with why it ended."""
    done.text = output.finish()
    if output.stopped:
        done.finish_reason = "stop"
    return done


__all__ = ["Engine", "Generation", "Speculation", "Tree"]
