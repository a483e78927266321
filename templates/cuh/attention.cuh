// What attention kernels share: how keys are cut into splits, and the merge of splits.
//
// Flash attention over split keys: a block goes over the tiles of one split and leaves for each of its pairs (a row of the slot
// and a head) the sum of weighted values, the highest score and the sum of weights; a second launch merges the splits.
#pragma once
#include "device.cuh"

namespace ddt {

constexpr int kTile = 32;  // keys of a tile: one load_tiles holds 8 columns of their values, two steps of a product
// Score of a key that is not seen: below any other, and differences are finite. A pair whose keys so far were all hidden has
// sums that count for nothing (a factor of exp2f(kNever - a score) = 0) as soon as it sees one, here or in the merge.
constexpr float kNever = -3.0e38f;
constexpr float kLog2e = 1.44269504089f;  // scores are powers of two
constexpr int kMergeThreads = 256;

// The tiles of a slot with keys: `first` .. `first + count`, `each` of them a split, `splits` splits have some. A function
// of the slot's length with its rows and of the variant, so a row's last bits depend on how many rows its step has.
struct Spans {
  int first, count, each, splits;
};

template <typename S>
__device__ __forceinline__ Spans spans_of(int committed, int valid) {
  Spans s;
  s.first = S::kWindow > 0 ? max(0, committed + 1 - S::kWindow) / kTile : 0;
  s.count = max(0, (committed + valid + kTile - 1) / kTile - s.first);
  s.each = max(1, (s.count + S::kSplits - 1) / S::kSplits);
  s.splits = (s.count + s.each - 1) / s.each;
  return s;
}

// Where split `split` of pair `pair` keeps its results; `pairs` of a slot.
template <typename S>
__device__ __forceinline__ i64 place_of(int slot, int split, int pairs, int pair) {
  return (static_cast<i64>(slot) * S::kSplits + split) * pairs + pair;
}

// n = 2 or 4 neighbours at once.
template <int n>
__device__ __forceinline__ void load_floats(float (&to)[n], const float* from) {
  static_assert(n == 2 || n == 4, "8 or 16 bytes");
  if constexpr (n == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  }
}

__device__ __forceinline__ float4 fma4(float a, float4 x, float4 y) {
  return make_float4(a * x.x + y.x, a * x.y + y.y, a * x.z + y.z, a * x.w + y.w);
}

// y [rows, kHeads, kWidth] = the splits of each pair merged by log-sum-exp, in the order of splits. Block (pair, slot, 4 kLanes
// columns); a part of its threads takes every kParts-th split. All loads are under way before the first weight is known.
template <typename S>
__device__ __forceinline__ void merge_splits(const float* sums, const float2* marks, const int* committed,
                                             const int* valid, bf16* y, int group) {
  constexpr int kLanes = S::kLanes, kParts = kMergeThreads / kLanes, kEach = (S::kSplits + kParts - 1) / kParts;
  __shared__ float weights[S::kSplits];
  __shared__ float4 room[kParts][kLanes];
  wait_for_predecessor();
  let_successor_start();
  const int pair = blockIdx.x, slot = blockIdx.y, pairs = group * S::kHeads, lane = threadIdx.x % kWarp;
  const int splits = spans_of<S>(committed[slot], valid[slot]).splits;
  const int part = threadIdx.x / kLanes, column = (blockIdx.z * kLanes + threadIdx.x % kLanes) * 4;
  float4 loaded[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int split = i * kParts + part;
    loaded[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (split < splits && column < S::kWidth) {
      const float* from = sums + place_of<S>(slot, split, pairs, pair) * S::kWidth + column;
      loaded[i] = *reinterpret_cast<const float4*>(from);
    }
  }
  if (threadIdx.x < kWarp) {
    float high = kNever, sum = 0.0f;
    for (int s = lane; s < splits; s += kWarp) high = fmaxf(high, marks[place_of<S>(slot, s, pairs, pair)].x);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) high = fmaxf(high, __shfl_xor_sync(kAll, high, step));
    for (int s = lane; s < splits; s += kWarp) {
      const float2 mark = marks[place_of<S>(slot, s, pairs, pair)];
      weights[s] = exp2f(mark.x - high);
      sum += weights[s] * mark.y;
    }
    sum = warp_sum(sum);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;  // a padding row of an idle slot sees nothing
    for (int s = lane; s < splits; s += kWarp) weights[s] *= scale;
  }
  __syncthreads();
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int split = i * kParts + part;
    if (split < splits) total = fma4(weights[split], loaded[i], total);
  }
  room[part][threadIdx.x % kLanes] = total;
  __syncthreads();
  if (part > 0 || column >= S::kWidth) return;
  total = room[0][threadIdx.x];
#pragma unroll
  for (int p = 1; p < kParts; ++p) total = fma4(1.0f, room[p][threadIdx.x], total);
  const int row = slot * group + pair / S::kHeads;
  bf16* to = y + static_cast<i64>(row) * S::kYStride + pair % S::kHeads * S::kWidth + column;
  *reinterpret_cast<uint2*>(to) = make_uint2(pack(total.x, total.y), pack(total.z, total.w));
}

}  // namespace ddt
