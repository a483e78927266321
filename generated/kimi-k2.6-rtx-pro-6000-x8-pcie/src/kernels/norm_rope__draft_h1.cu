// norm_rope__draft_h1, printed from kernels/kernel.cu.j2.
// RMSNorm and rotary embedding of 1 heads
#include "rope.cuh"

struct NormRope {
  static constexpr int kDim = 128;
  static constexpr int kHeads = 1;
  static constexpr int kPairs = 8;
  static constexpr bool kHalf = true;
  static constexpr int kThreads = 32;
  static constexpr int kXStride = 1280;
  static constexpr int kXPitch = 128;
  static constexpr int kYStride = 128;
  static constexpr int kYPitch = 128;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(32, 1)
norm_rope_m128(const ddt::bf16* x, const ddt::bf16* w, const float2* table, const int* positions,
               const int* valid, ddt::bf16* y, int group) {
  ddt::norm_rope<NormRope>(x, w, table, positions, valid, y, group);
}
