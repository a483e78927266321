// rms_norm__n7168, printed from kernels/kernel.cu.j2.
// RMSNorm over 7168 elements
#include "rows.cuh"

struct RmsNorm {
  static constexpr int kWidth = 7168;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 448;
  static constexpr int kXStride = 7168;
  static constexpr int kXPitch = 7168;
  static constexpr int kYStride = 7168;
  static constexpr int kYPitch = 7168;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(448, 1)
rms_norm_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y) {
  ddt::rms_norm<RmsNorm>(x, w, y);
}
