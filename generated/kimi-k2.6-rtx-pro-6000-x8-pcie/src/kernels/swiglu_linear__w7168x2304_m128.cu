// swiglu_linear__w7168x2304_m128, printed from kernels/kernel.cu.j2.
// Gated activation and 7168 x 2304 product
#include "gemm.cuh"
#include "rows.cuh"

struct Swiglu {
  static constexpr int kWidth = 2304;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 288;
  static constexpr int kGateStride = 4608;
  static constexpr int kUpStride = 4608;
  static constexpr int kYStride = 2304;
};

extern "C" __global__ void __launch_bounds__(288, 1)
swiglu_m128(const ddt::bf16* gate, const ddt::bf16* up, ddt::bf16* y) {
  ddt::swiglu<Swiglu>(gate, up, y);
}

struct Linear {
  static constexpr int kOutputs = 7168;
  static constexpr int kInputs = 2304;
  static constexpr int kXStride = 2304;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 7168;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 12;
  static constexpr int kPlane = 12;
  static constexpr int kPlaneRows = 128;
  static constexpr bool kLeave = false;
};

struct LinearM8 : Linear {
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

struct LinearM16 : Linear {
  static constexpr int kRows = 16;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 2;
  static constexpr int kUnitsAhead = 4;
  static constexpr int kPass = 2;
};

struct LinearM32 : Linear {
  static constexpr int kRows = 32;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct LinearM64 : Linear {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 4;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = true;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct LinearM128 : Linear {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 4;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = true;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

extern "C" __global__ void __launch_bounds__(384, 2)
linear_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<LinearM8>(x, w, y, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m16(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<LinearM16>(x, w, y, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m32(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<LinearM32>(x, w, y, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
linear_m64(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<LinearM64>(x, w, y, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
linear_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, int rows) {
  ddt::linear<LinearM128>(x, w, y, rows);
}
