// tap__n7168, printed from kernels/kernel.cu.j2.
// Copies 7168 columns into the features of the drafter
#include "rows.cuh"

struct Tap {
  static constexpr int kWidth = 7168;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 448;
  static constexpr int kXStride = 7168;
  static constexpr int kYStride = 43008;
};

extern "C" __global__ void __launch_bounds__(448, 1)
tap_m128(const ddt::bf16* x, ddt::bf16* features, int index) {
  ddt::tap<Tap>(x, features, index);
}
