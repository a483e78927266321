// add__n256, printed from kernels/kernel.cu.j2.
// Sum of two rows of 256 elements
#include "rows.cuh"

struct Add {
  static constexpr int kWidth = 256;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 32;
  static constexpr int kAStride = 256;
  static constexpr int kBStride = 256;
  static constexpr int kYStride = 256;
};

extern "C" __global__ void __launch_bounds__(32, 1)
add_m128(const ddt::bf16* a, const ddt::bf16* b, ddt::bf16* y) {
  ddt::add<Add>(a, b, y);
}
