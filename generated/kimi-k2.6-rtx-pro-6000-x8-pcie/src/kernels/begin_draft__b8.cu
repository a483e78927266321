// begin_draft__b8, printed from kernels/kernel.cu.j2.
// A draft block of 8 rows for every slot: its anchor, then mask tokens
#include "tree.cuh"

struct BeginDraft {
  static constexpr int kBlock = 8;
  static constexpr int kMaskToken = 163838;
};

extern "C" __global__ void __launch_bounds__(32, 1)
begin_draft_m128(const int* status, const int* length, const int* anchor, int* tokens,
                 int* positions, int* committed, int* valid, int* out_index) {
  ddt::begin_draft<BeginDraft>(status, length, anchor, tokens, positions, committed, valid,
                               out_index);
}
