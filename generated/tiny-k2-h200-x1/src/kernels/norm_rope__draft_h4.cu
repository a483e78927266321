// norm_rope__draft_h4, printed from kernels/kernel.cu.j2.
// RMSNorm and rotary embedding of 4 heads
#include "rope.cuh"

struct NormRope {
  static constexpr int kDim = 32;
  static constexpr int kHeads = 4;
  static constexpr int kPairs = 8;
  static constexpr bool kHalf = true;
  static constexpr int kThreads = 128;
  static constexpr int kXStride = 512;
  static constexpr int kXPitch = 32;
  static constexpr int kYStride = 128;
  static constexpr int kYPitch = 32;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(128, 1)
norm_rope_m128(const ddt::bf16* x, const ddt::bf16* w, const float2* table, const int* positions,
               const int* valid, ddt::bf16* y, int group) {
  ddt::norm_rope<NormRope>(x, w, table, positions, valid, y, group);
}
