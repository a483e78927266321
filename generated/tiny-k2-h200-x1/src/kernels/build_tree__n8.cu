// build_tree__n8, printed from kernels/kernel.cu.j2.
// The best tree of up to 8 nodes over 7 draft rows of every slot
#include "tree.cuh"

struct BuildTree {
  static constexpr int kRows = 7;
  static constexpr int kTop = 8;
  static constexpr int kNodes = 8;
  static constexpr int kLevels = 7;
  static constexpr int kRankBits = 4;
};

extern "C" __global__ void __launch_bounds__(128, 1)
build_tree_m128(const float* top_logprobs, const int* top_tokens, const double* round_cost,
                const int* status, const int* mode, const int* budget, const int* limit,
                const int* produced, const int* room, const int* length, const int* anchor,
                int* tokens, int* positions, int* committed, int* valid, ddt::u32* masks,
                int* out_index, int* nodes, int* parents, int* ranks, double* scores,
                int* broken_drafts, int group) {
  ddt::build_tree<BuildTree>(top_logprobs, top_tokens, round_cost, status, mode, budget, limit,
                             produced, room, length, anchor, tokens, positions, committed, valid,
                             masks, out_index, nodes, parents, ranks, scores, broken_drafts, group);
}
