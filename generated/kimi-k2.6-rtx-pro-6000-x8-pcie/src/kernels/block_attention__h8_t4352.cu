// block_attention__h8_t4352, printed from kernels/kernel.cu.j2.
// Attention of the drafter, 8 heads over 1: partial results of split keys, then their merge
#include "block_attention.cuh"

struct Attend {
  static constexpr int kHeads = 8;
  static constexpr int kKvHeads = 1;
  static constexpr int kDim = 128;
  static constexpr int kQStride = 1024;
  static constexpr int kKStride = 128;
  static constexpr int kVStride = 1280;
  static constexpr int kSlots = 1;
  static constexpr int kTokens = 4352;
  static constexpr int kBase = 0;
  static constexpr int kWindow = 2048;
  static constexpr bool kCausal = false;
  static constexpr float kScale = 0.08838834764831845f;
  static constexpr int kRows = 64;
  static constexpr int kStages = 3;
  static constexpr int kSplits = 94;
};

extern "C" __global__ void __launch_bounds__(128, 1)
attend_m8(const ddt::bf16* q, const ddt::bf16* k, const ddt::bf16* v, const ddt::bf16* context,
          const int* committed, const int* valid, float* sums, float2* marks, int layer,
          int group) {
  ddt::block_attention<Attend>(q, k, v, context, committed, valid, sums, marks, layer, group);
}

struct Merge {
  static constexpr int kHeads = 8;
  static constexpr int kWidth = 128;
  static constexpr int kYStride = 1024;
  static constexpr int kWindow = 2048;
  static constexpr int kSplits = 94;
  static constexpr int kLanes = 32;
};

extern "C" __global__ void __launch_bounds__(256, 1)
merge_m8(const float* sums, const float2* marks, const int* committed, const int* valid,
         ddt::bf16* y, int group) {
  ddt::merge_splits<Merge>(sums, marks, committed, valid, y, group);
}
