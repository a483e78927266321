// experts_shared__e16, printed from kernels/kernel.cu.j2.
// 16 experts of 96, 4 a row, and a shared expert of 96
#include "experts.cuh"

struct ExpertsUp {
  using Tile = ddt::Int4Tile<true>;
  static constexpr int kExperts = 16;
  static constexpr int kTopK = 4;
  static constexpr int kHidden = 256;
  static constexpr int kInter = 96;
  static constexpr int kSharedInter = 96;
  static constexpr int kXStride = 256;
};

struct ExpertsUpM1 : ExpertsUp {
  static constexpr int kRows = 1;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 1;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 9216;
  static constexpr int kShared = 20720;
};

struct ExpertsUpM8 : ExpertsUp {
  static constexpr int kRows = 8;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 1;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 9216;
  static constexpr int kShared = 20928;
};

struct ExpertsUpM16 : ExpertsUp {
  static constexpr int kRows = 16;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 6912;
  static constexpr int kShared = 18496;
};

struct ExpertsUpM32 : ExpertsUp {
  static constexpr int kRows = 32;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 6912;
  static constexpr int kShared = 18784;
};

struct ExpertsUpM64 : ExpertsUp {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 6912;
  static constexpr int kShared = 19344;
};

struct ExpertsUpM128 : ExpertsUp {
  static constexpr int kRows = 128;
  static constexpr int kTiles = 2;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 2;
  static constexpr int kRing = 6912;
  static constexpr int kShared = 20464;
};

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m1(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
              const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
              int rows) {
  ddt::experts_up<ExpertsUpM1>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m8(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
              const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
              int rows) {
  ddt::experts_up<ExpertsUpM8>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m16(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
               const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
               int rows) {
  ddt::experts_up<ExpertsUpM16>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m32(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
               const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
               int rows) {
  ddt::experts_up<ExpertsUpM32>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m64(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
               const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
               int rows) {
  ddt::experts_up<ExpertsUpM64>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

extern "C" __global__ void __launch_bounds__(64, 2)
experts_up_m128(const ddt::bf16* x, const ddt::i64* ids, const ddt::u8* gate_up,
                const ddt::u8* shared_gate_up, ddt::bf16* acts, ddt::bf16* shared_acts, int first,
                int rows) {
  ddt::experts_up<ExpertsUpM128>(x, ids, gate_up, shared_gate_up, acts, shared_acts, first, rows);
}

struct ExpertsDown {
  using Tile = ddt::Int4Tile<true>;
  static constexpr int kExperts = 16;
  static constexpr int kTopK = 4;
  static constexpr int kHidden = 256;
  static constexpr int kInter = 96;
  static constexpr int kSharedInter = 96;
  static constexpr int kYStride = 256;
  static constexpr int kSharedWarps = 1;
};

struct ExpertsDownM1 : ExpertsDown {
  static constexpr int kRows = 1;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 1;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 41104;
  static constexpr int kSharedRing = 8192;
};

struct ExpertsDownM8 : ExpertsDown {
  static constexpr int kRows = 8;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 1;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 43664;
  static constexpr int kSharedRing = 8192;
};

struct ExpertsDownM16 : ExpertsDown {
  static constexpr int kRows = 16;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 46480;
  static constexpr int kSharedRing = 8192;
};

struct ExpertsDownM32 : ExpertsDown {
  static constexpr int kRows = 32;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 52144;
  static constexpr int kSharedRing = 8192;
};

struct ExpertsDownM64 : ExpertsDown {
  static constexpr int kRows = 64;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 63456;
  static constexpr int kSharedRing = 8192;
};

struct ExpertsDownM128 : ExpertsDown {
  static constexpr int kRows = 128;
  static constexpr int kTiles = 1;
  static constexpr int kCols = 2;
  static constexpr int kWarps = 7;
  static constexpr int kRing = 4608;
  static constexpr int kShared = 86080;
  static constexpr int kSharedRing = 8192;
};

extern "C" __global__ void __launch_bounds__(256, 3)
experts_down_m1(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                int first, int rows) {
  ddt::experts_down<ExpertsDownM1>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}

extern "C" __global__ void __launch_bounds__(256, 3)
experts_down_m8(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                int first, int rows) {
  ddt::experts_down<ExpertsDownM8>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}

extern "C" __global__ void __launch_bounds__(256, 2)
experts_down_m16(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                 const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                 int first, int rows) {
  ddt::experts_down<ExpertsDownM16>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}

extern "C" __global__ void __launch_bounds__(256, 2)
experts_down_m32(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                 const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                 int first, int rows) {
  ddt::experts_down<ExpertsDownM32>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}

extern "C" __global__ void __launch_bounds__(256, 2)
experts_down_m64(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                 const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                 int first, int rows) {
  ddt::experts_down<ExpertsDownM64>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}

extern "C" __global__ void __launch_bounds__(256, 2)
experts_down_m128(const ddt::bf16* acts, const ddt::bf16* shared_acts, const ddt::i64* ids,
                  const float* w, const ddt::u8* down, const ddt::u8* shared_down, ddt::bf16* y,
                  int first, int rows) {
  ddt::experts_down<ExpertsDownM128>(acts, shared_acts, ids, w, down, shared_down, y, first, rows);
}
