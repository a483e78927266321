// linear__w7168x1024_m8, printed from kernels/kernel.cu.j2.
// 7168 x 1024 product
#include "gemm.cuh"

struct Linear {
  static constexpr int kOutputs = 7168;
  static constexpr int kInputs = 1024;
  static constexpr int kXStride = 1024;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 7168;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 8;
  static constexpr int kPlane = 8;
  static constexpr int kPlaneRows = 8;
  static constexpr bool kLeave = false;
  static constexpr int kRows = 8;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 1;
  static constexpr int kUnitsAhead = 4;
  static constexpr int kPass = 1;
};

extern "C" __global__ void __launch_bounds__(256, 4)
linear_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<Linear>(x, w, y, rows);
}
