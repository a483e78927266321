// add__n7168, printed from kernels/kernel.cu.j2.
// Sum of two rows of 7168 elements
#include "rows.cuh"

struct Add {
  static constexpr int kWidth = 7168;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 448;
  static constexpr int kAStride = 7168;
  static constexpr int kBStride = 7168;
  static constexpr int kYStride = 7168;
};

extern "C" __global__ void __launch_bounds__(448, 1)
add_m128(const ddt::bf16* a, const ddt::bf16* b, ddt::bf16* y) {
  ddt::add<Add>(a, b, y);
}
