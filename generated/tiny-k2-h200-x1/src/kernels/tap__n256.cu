// tap__n256, printed from kernels/kernel.cu.j2.
// Copies 256 columns into the features of the drafter
#include "rows.cuh"

struct Tap {
  static constexpr int kWidth = 256;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 32;
  static constexpr int kXStride = 256;
  static constexpr int kYStride = 768;
};

extern "C" __global__ void __launch_bounds__(32, 1)
tap_m128(const ddt::bf16* x, ddt::bf16* features, int index) {
  ddt::tap<Tap>(x, features, index);
}
