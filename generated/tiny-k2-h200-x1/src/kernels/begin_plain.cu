// begin_plain, printed from kernels/kernel.cu.j2.
// One row for every slot: its anchor
#include "tree.cuh"

struct BeginPlain {
};

extern "C" __global__ void __launch_bounds__(128, 1)
begin_plain_m128(const int* status, const int* length, const int* anchor, int* tokens,
                 int* positions, int* committed, int* valid, ddt::u32* masks, int* out_index,
                 int* nodes, int* parents, int* ranks, double* scores, int slots) {
  ddt::begin_plain<BeginPlain>(status, length, anchor, tokens, positions, committed, valid, masks,
                               out_index, nodes, parents, ranks, scores, slots);
}
