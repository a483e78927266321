// embedding__t20480, printed from kernels/kernel.cu.j2.
// Embeddings of 20480 tokens, 7168 elements each
#include "rows.cuh"

struct Embedding {
  static constexpr int kWidth = 7168;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 448;
  static constexpr int kXStride = 7168;
  static constexpr int kTokens = 20480;
};

extern "C" __global__ void __launch_bounds__(448, 1)
embedding_m128(const int* tokens, const ddt::bf16* table, ddt::bf16* x, int first) {
  ddt::embedding<Embedding>(tokens, table, x, first);
}
