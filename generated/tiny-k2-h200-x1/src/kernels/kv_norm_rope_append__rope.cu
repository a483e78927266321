// kv_norm_rope_append__rope, printed from kernels/kernel.cu.j2.
// RMSNorm of the latent, rotary embedding of its key, both into the paged cache
#include "rope.cuh"

struct KvNormRopeAppend {
  static constexpr int kDim = 16;
  static constexpr int kHeads = 1;
  static constexpr int kPairs = 4;
  static constexpr bool kHalf = false;
  static constexpr int kThreads = 32;
  static constexpr int kWidth = 128;
  static constexpr int kVector = 8;
  static constexpr int kCStride = 272;
  static constexpr int kKStride = 272;
  static constexpr float kEps = 1e-05f;
  static constexpr int kPage = 16;
  static constexpr int kPages = 130;
  static constexpr int kTokens = 16640;
  static constexpr int kLatent = 144;
};

extern "C" __global__ void __launch_bounds__(32, 1)
kv_norm_rope_append_m128(const ddt::bf16* c, const ddt::bf16* k, const ddt::bf16* w,
                         const float2* table, const int* positions, const int* pages,
                         const int* committed, const int* valid, ddt::bf16* latent, int layer,
                         int group) {
  ddt::norm_rope_latent<KvNormRopeAppend>(c, k, w, table, positions, pages, committed, valid,
                                          latent, layer, group);
}
