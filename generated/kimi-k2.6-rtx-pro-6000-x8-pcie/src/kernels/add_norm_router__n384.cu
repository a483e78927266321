// add_norm_router__n384, printed from kernels/kernel.cu.j2.
// Sum of two rows, its RMSNorm and 8 of 384 experts
#include "gemm.cuh"
#include "router.cuh"
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

struct Logits {
  static constexpr int kOutputs = 384;
  static constexpr int kInputs = 7168;
  static constexpr int kXStride = 7168;
  static constexpr int kXHead = 0;
  static constexpr int kYStride = 384;
  static constexpr int kYHead = 0;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 16;
  static constexpr int kPlane = 4;
  static constexpr int kPlaneRows = 128;
  static constexpr bool kLeave = true;
};

struct LogitsM8 : Logits {
  static constexpr int kRows = 8;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 4;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 7;
  static constexpr int kUnit = 1;
  static constexpr int kUnitsAhead = 7;
  static constexpr int kPass = 1;
};

struct LogitsM16 : Logits {
  static constexpr int kRows = 16;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 1;
  static constexpr int kSplit = 4;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 2;
  static constexpr int kUnitsAhead = 4;
  static constexpr int kPass = 2;
};

struct LogitsM32 : Logits {
  static constexpr int kRows = 32;
  static constexpr int kTiles = 1;
  static constexpr int kRowWarps = 2;
  static constexpr int kSplit = 4;
  static constexpr bool kSerial = false;
  static constexpr int kAhead = 4;
  static constexpr int kUnit = 4;
  static constexpr int kUnitsAhead = 2;
  static constexpr int kPass = 4;
};

struct LogitsM64 : Logits {
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

struct LogitsM128 : Logits {
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

extern "C" __global__ void __launch_bounds__(128, 1)
logits_m8(const ddt::bf16* x, const ddt::bf16* w, float* planes, int rows) {
  ddt::linear_planes<LogitsM8>(x, w, planes, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
logits_m16(const ddt::bf16* x, const ddt::bf16* w, float* planes, int rows) {
  ddt::linear_planes<LogitsM16>(x, w, planes, rows);
}

extern "C" __global__ void __launch_bounds__(256, 1)
logits_m32(const ddt::bf16* x, const ddt::bf16* w, float* planes, int rows) {
  ddt::linear_planes<LogitsM32>(x, w, planes, rows);
}

extern "C" __global__ void __launch_bounds__(512, 1)
logits_m64(const ddt::bf16* x, const ddt::bf16* w, float* planes, int rows) {
  ddt::linear_planes<LogitsM64>(x, w, planes, rows);
}

extern "C" __global__ void __launch_bounds__(512, 1)
logits_m128(const ddt::bf16* x, const ddt::bf16* w, float* planes, int rows) {
  ddt::linear_planes<LogitsM128>(x, w, planes, rows);
}

struct Choose {
  static constexpr int kExperts = 384;
  static constexpr int kTopK = 8;
  static constexpr int kGroups = 1;
  static constexpr int kTopGroups = 1;
  static constexpr bool kSigmoid = true;
  static constexpr bool kNormalize = true;
  static constexpr float kScale = 2.827f;
  static constexpr int kPlanes = 4;
  static constexpr int kPlaneRows = 128;
};

extern "C" __global__ void __launch_bounds__(32, 1)
choose_m128(const float* logits, const float* bias, ddt::i64* ids, float* w) {
  ddt::choose_experts<Choose>(logits, bias, ids, w);
}
