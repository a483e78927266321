// block_attention__h8, printed from kernels/kernel.cu.j2.
// Attention of the drafter, 8 heads over 4: partial results of split keys, then their merge
#include "block_attention.cuh"

struct Attend {
  static constexpr int kHeads = 8;
  static constexpr int kKvHeads = 4;
  static constexpr int kDim = 32;
  static constexpr int kQStride = 256;
  static constexpr int kKStride = 128;
  static constexpr int kVStride = 512;
  static constexpr int kSlots = 8;
  static constexpr int kTokens = 2176;
  static constexpr int kBase = 0;
  static constexpr int kWindow = 0;
  static constexpr bool kCausal = false;
  static constexpr float kScale = 0.1767766952966369f;
  static constexpr int kRows = 64;
  static constexpr int kStages = 3;
};

struct AttendM8 : Attend {
  static constexpr int kSplits = 66;
};

struct AttendM32 : Attend {
  static constexpr int kSplits = 33;
};

struct AttendM128 : Attend {
  static constexpr int kSplits = 8;
};

extern "C" __global__ void __launch_bounds__(128, 1)
attend_m8(const ddt::bf16* q, const ddt::bf16* k, const ddt::bf16* v, const ddt::bf16* context,
          const int* committed, const int* valid, float* sums, float2* marks, int layer,
          int group) {
  ddt::block_attention<AttendM8>(q, k, v, context, committed, valid, sums, marks, layer, group);
}

extern "C" __global__ void __launch_bounds__(128, 1)
attend_m32(const ddt::bf16* q, const ddt::bf16* k, const ddt::bf16* v, const ddt::bf16* context,
           const int* committed, const int* valid, float* sums, float2* marks, int layer,
           int group) {
  ddt::block_attention<AttendM32>(q, k, v, context, committed, valid, sums, marks, layer, group);
}

extern "C" __global__ void __launch_bounds__(128, 1)
attend_m128(const ddt::bf16* q, const ddt::bf16* k, const ddt::bf16* v, const ddt::bf16* context,
            const int* committed, const int* valid, float* sums, float2* marks, int layer,
            int group) {
  ddt::block_attention<AttendM128>(q, k, v, context, committed, valid, sums, marks, layer, group);
}

struct Merge {
  static constexpr int kHeads = 8;
  static constexpr int kWidth = 32;
  static constexpr int kYStride = 256;
  static constexpr int kWindow = 0;
};

struct MergeM8 : Merge {
  static constexpr int kSplits = 66;
  static constexpr int kLanes = 8;
};

struct MergeM32 : Merge {
  static constexpr int kSplits = 33;
  static constexpr int kLanes = 8;
};

struct MergeM128 : Merge {
  static constexpr int kSplits = 8;
  static constexpr int kLanes = 8;
};

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m8(const float* sums, const float2* marks, const int* committed, const int* valid,
         ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM8>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m32(const float* sums, const float2* marks, const int* committed, const int* valid,
          ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM32>(sums, marks, committed, valid, y, group);
}

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m128(const float* sums, const float2* marks, const int* committed, const int* valid,
           ddt::bf16* y, int group) {
  ddt::merge_splits<MergeM128>(sums, marks, committed, valid, y, group);
}
