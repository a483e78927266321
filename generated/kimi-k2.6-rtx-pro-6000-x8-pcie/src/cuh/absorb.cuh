// The query side of absorbed MLA: q_nope of every head into latent space, and q_pe turned beside it.
#pragma once
#include "gemm.cuh"
#include "rows.cuh"

namespace ddt {

// Eight rows of one head: to = RoPE of the kDim elements at `from`, in pairs (2i, 2i + 1), or half a run apart if kHalf.
template <typename S>
__device__ __forceinline__ void turn_rows(const bf16* from, const float2* table, const int* positions, const int* valid, bf16* to,
                                          int first_row, int rows, int group) {
  const int pairs = S::kDim / 2;
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    const int low = S::kHalf ? pair : 2 * pair, high = S::kHalf ? pair + pairs : 2 * pair + 1;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = first_row + i;
      if (row >= rows || !is_real(valid, row, group)) continue;
      const float2 t = table[static_cast<i64>(positions[row]) * pairs + pair];
      const bf16* const x = from + static_cast<i64>(row) * S::kXStride;
      bf16* const y = to + static_cast<i64>(row) * S::kRotStride;
      const float a = to_float(x[low]), b = to_float(x[high]);
      y[low] = to_bf16(a * t.x - b * t.y);
      y[high] = to_bf16(b * t.x + a * t.y);
    }
  }
}

// q [rows, heads, kInputs | kDim] with heads kXHead apart: q_c = W q_nope by the first kTileBlocks blocks of a head (see gemm.cuh),
// q_rot = RoPE(q_pe) by the others, eight rows each.
template <typename S>
__device__ __forceinline__ void absorb_rope(const bf16* q, const bf16* w, const float2* table, const int* positions,
                                            const int* valid, bf16* q_c, bf16* q_rot, int rows, int group) {
  const int tiles = (S::kOutputs + LinearShape<S>::kBlockRows - 1) / LinearShape<S>::kBlockRows;
  if (static_cast<int>(blockIdx.x) < tiles) {
    linear<S>(q, w, q_c, rows);
    return;
  }
  let_successor_start();
  wait_for_predecessor();
  const int head = blockIdx.y, first_row = blockIdx.z * S::kRows + 8 * (blockIdx.x - tiles);
  turn_rows<S>(q + head * S::kXHead + S::kInputs, table, positions, valid, q_rot + head * S::kRotHead, first_row, rows, group);
}

}  // namespace ddt
