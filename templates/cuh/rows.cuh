// Work on whole rows: one block a row.
#pragma once
#include "device.cuh"

namespace ddt {

// y = x / sqrt(mean(x^2) + eps) * w over the last axis (RMSNorm), rounded once. Runs of kNorm elements of a row are normalised
// each on its own: kRuns is 1 for a plain norm, the number of heads for a norm a head.
template <typename S>
__device__ __forceinline__ void rms_norm(const bf16* x, const bf16* w, bf16* y, int rows) {
  __shared__ float room[kWarp];
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x, run = blockIdx.y;
  if (row >= rows) return;
  const bf16* from = x + static_cast<i64>(row) * S::kXStride + run * S::kNorm;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < S::kNorm; i += blockDim.x) {
    const float v = to_float(from[i]);
    squares += v * v;
  }
  const float scale = rsqrtf(block_sum(squares, room) / S::kNorm + S::kEps);
  bf16* to = y + static_cast<i64>(row) * S::kYStride + run * S::kNorm;
  for (int i = threadIdx.x; i < S::kNorm; i += blockDim.x) to[i] = to_bf16(to_float(from[i]) * scale * to_float(w[i]));
}

}  // namespace ddt
