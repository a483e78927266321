// compact__w576, printed from kernels/kernel.cu.j2.
// Accepted latents of 61 layers to their place behind the committed ones
#include "walk.cuh"

struct Compact {
  static constexpr int kBlock = 8;
  static constexpr int kWidth = 576;
  static constexpr int kPage = 16;
  static constexpr int kPagesPerSlot = 4098;
  static constexpr int kTokens = 65568;
  using Piece = uint4;
};

extern "C" __global__ void __launch_bounds__(96, 1)
compact_m128(ddt::bf16* latent, const int* pages, const int* committed, const int* accepted,
             const int* accepted_count) {
  ddt::compact<Compact>(latent, pages, committed, accepted, accepted_count);
}
