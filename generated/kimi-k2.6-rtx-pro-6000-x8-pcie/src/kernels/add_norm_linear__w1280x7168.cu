// add_norm_linear__w1280x7168, printed from kernels/kernel.cu.j2.
// Sum of two rows, its RMSNorm and 1280 x 7168 product
#include "gemm.cuh"
#include "rows.cuh"

struct AddNorm {
  static constexpr int kWidth = 7168;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 448;
  static constexpr int kAStride = 7168;
  static constexpr int kBStride = 7168;
  static constexpr int kYStride = 7168;
  static constexpr int kHStride = 7168;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(448, 1)
add_norm_m128(const ddt::bf16* a, const ddt::bf16* b, const ddt::bf16* w, ddt::bf16* y,
              ddt::bf16* h) {
  ddt::add_norm<AddNorm>(a, b, w, y, h);
}

struct Linear {
  static constexpr int kOutputs = 1280;
  static constexpr int kInputs = 7168;
  static constexpr int kXStride = 7168;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 1280;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 16;
  static constexpr int kPlane = 4;
  static constexpr int kPlaneRows = 8;
  static constexpr bool kLeave = false;
  static constexpr int kRows = 8;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 7;
  static constexpr int kUnit = 1;
  static constexpr int kUnitsAhead = 7;
  static constexpr int kPass = 1;
};

extern "C" __global__ void __launch_bounds__(512, 1)
linear_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<Linear>(x, w, y, rows);
}
