// add_norm_linear__w272x256, printed from kernels/kernel.cu.j2.
// Sum of two rows, its RMSNorm and 272 x 256 product
#include "gemm.cuh"
#include "rows.cuh"

struct AddNorm {
  static constexpr int kWidth = 256;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 32;
  static constexpr int kAStride = 256;
  static constexpr int kBStride = 256;
  static constexpr int kYStride = 256;
  static constexpr int kHStride = 256;
  static constexpr float kEps = 1e-05f;
};

extern "C" __global__ void __launch_bounds__(32, 1)
add_norm_m128(const ddt::bf16* a, const ddt::bf16* b, const ddt::bf16* w, ddt::bf16* y,
              ddt::bf16* h) {
  ddt::add_norm<AddNorm>(a, b, w, y, h);
}

struct Linear {
  static constexpr int kOutputs = 272;
  static constexpr int kInputs = 256;
  static constexpr int kXStride = 256;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 272;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 2;
  static constexpr int kPlane = 1;
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
  static constexpr int kRowWarps = 2;
  static constexpr int kSplit = 2;
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
  static constexpr int kSplit = 2;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct LinearM128 : Linear {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 4;
  static constexpr int kSplit = 2;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

extern "C" __global__ void __launch_bounds__(64, 1)
linear_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
          int rows) {
  ddt::linear<LinearM8>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(64, 4)
linear_m16(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM16>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(64, 1)
linear_m32(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM32>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
linear_m64(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM64>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
linear_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
            int rows) {
  ddt::linear<LinearM128>(x, w, y, planes, tickets, rows);
}
