// rms_norm__n256, printed from kernels/kernel.cu.j2.
// RMSNorm over 256 elements
#include "rows.cuh"

struct RmsNorm {
  static constexpr int kWidth = 256;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 32;
  static constexpr int kXStride = 256;
  static constexpr int kXPitch = 256;
  static constexpr int kYStride = 256;
  static constexpr int kYPitch = 256;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(32, 1)
rms_norm_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y) {
  ddt::rms_norm<RmsNorm>(x, w, y);
}
