// latent_attention_v_up__h8, printed from kernels/kernel.cu.j2.
// Absorbed MLA attention over the paged latent cache, then W_uv a head: partial results of split
// keys, their merge, the product
#include "gemm.cuh"
#include "latent_attention.cuh"

struct Attend {
  static constexpr int kHeads = 8;
  static constexpr int kLora = 512;
  static constexpr int kRope = 64;
  static constexpr int kCStride = 4096;
  static constexpr int kRotStride = 512;
  static constexpr int kPage = 16;
  static constexpr int kPagesPerSlot = 4098;
  static constexpr int kTokens = 65568;
  static constexpr int kWindow = 0;
  static constexpr float kScale = 0.14467962580268923f;
};

struct AttendM2 : Attend {
  static constexpr int kPairs = 16;
  static constexpr int kSplits = 188;
  static constexpr int kStages = 2;
};

struct AttendM8 : Attend {
  static constexpr int kPairs = 32;
  static constexpr int kSplits = 94;
  static constexpr int kStages = 2;
};

struct AttendM16 : Attend {
  static constexpr int kPairs = 32;
  static constexpr int kSplits = 47;
  static constexpr int kStages = 2;
};

struct AttendM32 : Attend {
  static constexpr int kPairs = 32;
  static constexpr int kSplits = 23;
  static constexpr int kStages = 2;
};

struct AttendM64 : Attend {
  static constexpr int kPairs = 32;
  static constexpr int kSplits = 11;
  static constexpr int kStages = 2;
};

struct AttendM128 : Attend {
  static constexpr int kPairs = 32;
  static constexpr int kSplits = 5;
  static constexpr int kStages = 2;
};

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m2(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent, const int* pages,
          const int* committed, const int* valid, const ddt::u32* masks, float* sums,
          float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM2>(q_c, q_rot, latent, pages, committed, valid, masks, sums, marks,
                                  layer, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m8(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent, const int* pages,
          const int* committed, const int* valid, const ddt::u32* masks, float* sums,
          float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM8>(q_c, q_rot, latent, pages, committed, valid, masks, sums, marks,
                                  layer, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m16(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent, const int* pages,
           const int* committed, const int* valid, const ddt::u32* masks, float* sums,
           float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM16>(q_c, q_rot, latent, pages, committed, valid, masks, sums, marks,
                                   layer, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m32(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent, const int* pages,
           const int* committed, const int* valid, const ddt::u32* masks, float* sums,
           float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM32>(q_c, q_rot, latent, pages, committed, valid, masks, sums, marks,
                                   layer, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m64(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent, const int* pages,
           const int* committed, const int* valid, const ddt::u32* masks, float* sums,
           float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM64>(q_c, q_rot, latent, pages, committed, valid, masks, sums, marks,
                                   layer, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
attend_m128(const ddt::bf16* q_c, const ddt::bf16* q_rot, const ddt::bf16* latent,
            const int* pages, const int* committed, const int* valid, const ddt::u32* masks,
            float* sums, float2* marks, int layer, int group) {
  ddt::latent_attention<AttendM128>(q_c, q_rot, latent, pages, committed, valid, masks, sums,
                                    marks, layer, group);
}

struct Merge {
  static constexpr int kHeads = 8;
  static constexpr int kWidth = 512;
  static constexpr int kYStride = 4096;
  static constexpr int kWindow = 0;
};

struct MergeM2 : Merge {
  static constexpr int kSplits = 188;
  static constexpr int kLanes = 32;
};

struct MergeM8 : Merge {
  static constexpr int kSplits = 94;
  static constexpr int kLanes = 32;
};

struct MergeM16 : Merge {
  static constexpr int kSplits = 47;
  static constexpr int kLanes = 32;
};

struct MergeM32 : Merge {
  static constexpr int kSplits = 23;
  static constexpr int kLanes = 32;
};

struct MergeM64 : Merge {
  static constexpr int kSplits = 11;
  static constexpr int kLanes = 32;
};

struct MergeM128 : Merge {
  static constexpr int kSplits = 5;
  static constexpr int kLanes = 32;
};

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m2(const float* sums, const float2* marks, const int* committed, const int* valid,
         ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM2>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m8(const float* sums, const float2* marks, const int* committed, const int* valid,
         ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM8>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m16(const float* sums, const float2* marks, const int* committed, const int* valid,
          ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM16>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m32(const float* sums, const float2* marks, const int* committed, const int* valid,
          ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM32>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m64(const float* sums, const float2* marks, const int* committed, const int* valid,
          ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM64>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m128(const float* sums, const float2* marks, const int* committed, const int* valid,
           ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM128>(sums, marks, committed, valid, y, group);
}

struct VUp {
  static constexpr int kOutputs = 128;
  static constexpr int kInputs = 512;
  static constexpr int kXStride = 4096;
  static constexpr int kXHead = 512;
  static constexpr int kYStride = 1024;
  static constexpr int kYHead = 128;
  static constexpr int kVector = 8;
  static constexpr int kSlices = 4;
  static constexpr int kPlane = 1;
  static constexpr int kPlaneRows = 128;
  static constexpr bool kLeave = false;
};

struct VUpM8 : VUp {
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

struct VUpM16 : VUp {
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

struct VUpM32 : VUp {
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

struct VUpM64 : VUp {
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

struct VUpM128 : VUp {
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
v_up_m8(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
        int rows) {
  ddt::linear<VUpM8>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(128, 4)
v_up_m16(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
         int rows) {
  ddt::linear<VUpM16>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(64, 1)
v_up_m32(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
         int rows) {
  ddt::linear<VUpM32>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
v_up_m64(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
         int rows) {
  ddt::linear<VUpM64>(x, w, y, planes, tickets, rows);
}

extern "C" __global__ void __launch_bounds__(128, 1)
v_up_m128(const ddt::bf16* x, const ddt::bf16* w, ddt::bf16* y, float* planes, int* tickets,
          int rows) {
  ddt::linear<VUpM128>(x, w, y, planes, tickets, rows);
}
