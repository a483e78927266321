// q_b_absorb_rope__w1536x1536, printed from kernels/kernel.cu.j2.
// RMSNorm, 1536 x 1536 product, 8 heads absorbed and turned
#include "absorb.cuh"
#include "gemm.cuh"
#include "rows.cuh"

struct RmsNorm {
  static constexpr int kWidth = 1536;
  static constexpr int kVector = 8;
  static constexpr int kThreads = 192;
  static constexpr int kXStride = 2112;
  static constexpr int kXPitch = 1536;
  static constexpr int kYStride = 1536;
  static constexpr int kYPitch = 1536;
  static constexpr float kEps = 1e-06f;
};

extern "C" __global__ void __launch_bounds__(192, 1)
rms_norm_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y) {
  ddt::rms_norm<RmsNorm>(x, w, y);
}

struct Linear {
  static constexpr int kOutputs = 1536;
  static constexpr int kInputs = 1536;
  static constexpr int kXStride = 1536;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 1536;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 12;
  static constexpr int kPlane = 3;
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
  static constexpr int kSplit = 4;
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
  static constexpr int kSplit = 4;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
          int rows) {
  ddt::linear<LinearM8>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m16(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM16>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m32(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM32>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m64(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
           int rows) {
  ddt::linear<LinearM64>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(384, 1)
linear_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
            int rows) {
  ddt::linear<LinearM128>(x, w, y, planes, tickets, rows);
}

struct Absorb {
  static constexpr int kOutputs = 512;
  static constexpr int kInputs = 128;
  static constexpr int kXStride = 1536;
  static constexpr int kXHead = 192;
  static constexpr int kYStride = 4096;
  static constexpr int kYHead = 512;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 1;
  static constexpr int kPlane = 1;
  static constexpr int kPlaneRows = 128;
  static constexpr bool kLeave = false;
  static constexpr int kDim = 64;
  static constexpr bool kHalf = false;
  static constexpr int kRotStride = 512;
  static constexpr int kRotHead = 64;
};

struct AbsorbM8 : Absorb {
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

struct AbsorbM16 : Absorb {
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

struct AbsorbM32 : Absorb {
  static constexpr int kRows = 32;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 2;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct AbsorbM64 : Absorb {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 4;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct AbsorbM128 : Absorb {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 4;
  static constexpr int kSplit = 1;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 2;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

extern "C" __global__ void __launch_bounds__(32, 8)
absorb_m8(const ddt::bf16* q, const ddt::bf16* w, const float2* table, const int* positions,
          const int* valid, ddt::bf16* q_c, ddt::bf16* q_rot, int rows, int group) {
  ddt::absorb_rope<AbsorbM8>(q, w, table, positions, valid, q_c, q_rot, rows, group);
}

extern "C" __global__ void __launch_bounds__(32, 4)
absorb_m16(const ddt::bf16* q, const ddt::bf16* w, const float2* table, const int* positions,
           const int* valid, ddt::bf16* q_c, ddt::bf16* q_rot, int rows, int group) {
  ddt::absorb_rope<AbsorbM16>(q, w, table, positions, valid, q_c, q_rot, rows, group);
}

extern "C" __global__ void __launch_bounds__(64, 1)
absorb_m32(const ddt::bf16* q, const ddt::bf16* w, const float2* table, const int* positions,
           const int* valid, ddt::bf16* q_c, ddt::bf16* q_rot, int rows, int group) {
  ddt::absorb_rope<AbsorbM32>(q, w, table, positions, valid, q_c, q_rot, rows, group);
}

extern "C" __global__ void __launch_bounds__(128, 1)
absorb_m64(const ddt::bf16* q, const ddt::bf16* w, const float2* table, const int* positions,
           const int* valid, ddt::bf16* q_c, ddt::bf16* q_rot, int rows, int group) {
  ddt::absorb_rope<AbsorbM64>(q, w, table, positions, valid, q_c, q_rot, rows, group);
}

extern "C" __global__ void __launch_bounds__(128, 1)
absorb_m128(const ddt::bf16* q, const ddt::bf16* w, const float2* table, const int* positions,
            const int* valid, ddt::bf16* q_c, ddt::bf16* q_rot, int rows, int group) {
  ddt::absorb_rope<AbsorbM128>(q, w, table, positions, valid, q_c, q_rot, rows, group);
}
