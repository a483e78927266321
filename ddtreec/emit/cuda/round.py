"""The round on the device: what happens between the step programs, and the arrays that this needs.

Order of a round with drafts (tree or chain); `group` is the rows a slot of the target's step:

| launch          | reads (state arrays)                               | writes                                       |
|-----------------|----------------------------------------------------|----------------------------------------------|
| begin_draft     | status length anchor                               | tokens positions committed valid out_index   |
| draft_block     | program: slots of B rows                           | draft_logits                                 |
| top_tokens      | draft_logits                                       | top_logprobs top_tokens                      |
| build_tree      | top_logprobs top_tokens round_cost status mode     | tokens positions committed valid masks       |
|                 | budget limit produced room length anchor           | out_index nodes parents ranks scores         |
|                 |                                                    | broken_drafts                                |
| target          | program: slots of `group` rows, logits of all      | logits features latent                       |
| pick_greedy     | logits valid                                       | picks                                        |
|  or pick        | also positions temperature top_p top_k seed        | picks                                        |
|                 | request                                            |                                              |
| walk            | tokens nodes parents ranks scores picks            | length anchor produced status rounds         |
|                 | temperature limit room heed_stops                  | accepted accepted_count ring                 |
| compact         | pages committed accepted accepted_count            | latent                                       |
| gather_features | features accepted accepted_count committed         | context_features positions valid             |
| draft_context   | program: slots of B rows of context_features       | context                                      |

Without drafts: begin_plain (status length anchor; writes what build_tree writes, for one row a slot), target, pick or
pick_greedy, walk. The end of a prefill is such a round without its target step: with length = P - 1 and anchor = the
last token of the prompt, begin_plain, pick and walk give the first token of the output from the logits of the prefill.

`committed` stays the length before the round until begin_draft or begin_plain. A slot whose status is not 1 (runs) has
valid = 0: nothing of it is committed or reported. Kernels count on `slots` and `group` of the launch; B, the slots of a
draft block, is a constant. Nothing waits for the host.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.artifacts.plan import Plan
from ddtreec.emit.cuda import round_ends, round_pick, round_tree
from ddtreec.emit.cuda.base import Device, RoundDraft
from ddtreec.emit.cuda.round_state import Operands, round_state, sizes_of, values_of_programs
from ddtreec.emit.cuda.state import known_arrays


def round_kernels(plan: Plan, device: Device, most: Mapping[str, int]) -> RoundDraft:
    """All kernels of the rounds of a plan, in the order of a round, and the arrays that they name besides those of
    programs. Raises SpecError (S066) for a draft block without kernel."""
    sizes = sizes_of(plan)
    arrays = round_state(sizes) | values_of_programs(sizes)
    operands = Operands(known_arrays(plan) | arrays)
    kernels = (
        *round_tree.kernels(plan, sizes, operands),
        *round_pick.kernels(sizes, operands),
        *round_ends.kernels(plan, sizes, operands),
    )
    return RoundDraft(kernels, tuple(arrays.values()))
