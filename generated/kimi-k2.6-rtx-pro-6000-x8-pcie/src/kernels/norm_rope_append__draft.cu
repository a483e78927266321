// norm_rope_append__draft, printed from kernels/kernel.cu.j2.
// RMSNorm and rotary embedding of keys, with values into the drafter's context
#include "rope.cuh"

struct NormRopeAppend {
  static constexpr int kDim = 128;
  static constexpr int kHeads = 1;
  static constexpr int kPairs = 8;
  static constexpr bool kHalf = true;
  static constexpr int kThreads = 32;
  static constexpr int kKStride = 256;
  static constexpr int kKPitch = 128;
  static constexpr int kVStride = 256;
  static constexpr int kVPitch = 128;
  static constexpr float kEps = 1e-05f;
  using Layers = ddt::ContextLayers<4352, 4352, 4352, 4352, 4352, 65664>;
  static constexpr int kSlots = 1;
};

extern "C" __global__ void __launch_bounds__(32, 1)
norm_rope_append_m128(const ddt::bf16* k, const ddt::bf16* v, const ddt::bf16* w,
                      const float2* table, const int* positions, const int* valid,
                      ddt::bf16* context, int layer, int group) {
  ddt::norm_rope_context<NormRopeAppend>(k, v, w, table, positions, valid, context, layer, group);
}
