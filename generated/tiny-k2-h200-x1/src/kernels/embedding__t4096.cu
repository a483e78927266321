// embedding__t4096, printed from kernels/kernel.cu.j2.
// Embeddings of 4096 tokens, 256 elements each
#include "rows.cuh"

struct Embedding {
  static constexpr int kWidth = 256;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 32;
  static constexpr int kXStride = 256;
  static constexpr int kTokens = 4096;
};

extern "C" __global__ void __launch_bounds__(32, 1)
embedding_m128(const int* tokens, const ddt::bf16* table, ddt::bf16* x, int first) {
  ddt::embedding<Embedding>(tokens, table, x, first);
}
