// kv_norm_rope_append__rope, printed from kernels/kernel.cu.j2.
// RMSNorm of the latent, rotary embedding of its key, both into the paged cache
#include "rope.cuh"

struct KvNormRopeAppend {
  static constexpr int kDim = 64;
  static constexpr int kHeads = 1;
  static constexpr int kPairs = 4;
  static constexpr bool kHalf = false;
  static constexpr int kThreads = 64;
  static constexpr int kWidth = 512;
  static constexpr int kVector = 8;
  static constexpr int kCStride = 2112;
  static constexpr int kKStride = 2112;
  static constexpr float kEps = 1e-06f;
  static constexpr int kPage = 16;
  static constexpr int kPages = 4098;
  static constexpr int kTokens = 65568;
  static constexpr int kLatent = 576;
};

extern "C" __global__ void __launch_bounds__(64, 1)
kv_norm_rope_append_m128(const ddt::bf16* c, const ddt::bf16* k, const ddt::bf16* w,
                         const float2* table, const int* positions, const int* pages,
                         const int* committed, const int* valid, ddt::bf16* latent, int layer,
                         int group) {
  ddt::norm_rope_latent<KvNormRopeAppend>(c, k, w, table, positions, pages, committed, valid,
                                          latent, layer, group);
}
