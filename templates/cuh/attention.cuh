// What attention kernels share: how keys are cut into splits, a tile of scores turned into weights, and the merge of splits.
//
// Flash attention over split keys: a block goes over the tiles of one split and leaves for each of its pairs (a row of the slot
// and a head) the sum of weighted values, the highest score and the sum of weights; a second launch merges the splits.
#pragma once
#include "device.cuh"

namespace ddt {

constexpr int kTile = 32;  // keys of a tile: one ldmatrix.x4 holds 8 columns of their values, two steps of a product
constexpr float kNever = -3.0e38f;  // score of a key that is not seen: below any other, and its differences are finite
constexpr float kLog2e = 1.44269504089f;  // scores are powers of two

// The tiles of a slot with keys: `first` .. `first + count`, `each` of them a split, `splits` splits have some. A function
// of the length alone, so that a row's sums do not depend on how many rows a step has.
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

// Running maximum, sum of weights and weighted values of two pairs a lane: rows g and g + 8 of a tile of products.
template <int kColumns>
struct Running {
  float high[2], sum[2], values[kColumns][4];

  __device__ __forceinline__ void clear() {
    high[0] = high[1] = kNever;
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) values[c][0] = values[c][1] = values[c][2] = values[c][3] = 0.0f;
  }

  // Turns scores (in powers of two; 16 pairs x 32 keys as four products) into weights relative to the new maximum.
  __device__ __forceinline__ void weigh(float (&scores)[4][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = high[r];
#pragma unroll
      for (int n = 0; n < 4; ++n) top = fmaxf(top, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      const float fade = exp2f(high[r] - top);
      high[r] = top;
      float total = 0.0f;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          scores[n][e] = scores[n][e] == kNever ? 0.0f : exp2f(scores[n][e] - top);
          total += scores[n][e];
        }
      }
      sum[r] = sum[r] * fade + total;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        values[c][2 * r] *= fade;
        values[c][2 * r + 1] *= fade;
      }
    }
  }

  // values += weights [16 x 32] times `from`: 32 keys of kPitch elements, kColumns tiles of 8 columns. Not kWhole: only
  // `tiles` of them exist.
  template <int kPitch, bool kWhole>
  __device__ __forceinline__ void add(const float (&weights)[4][4], const bf16* from, int tiles) {
    u32 a[2][4];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      a[k][0] = pack(weights[2 * k][0], weights[2 * k][1]);
      a[k][1] = pack(weights[2 * k][2], weights[2 * k][3]);
      a[k][2] = pack(weights[2 * k + 1][0], weights[2 * k + 1][1]);
      a[k][3] = pack(weights[2 * k + 1][2], weights[2 * k + 1][3]);
    }
    const bf16* row = from + threadIdx.x % kWarp * kPitch;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (!kWhole && c >= tiles) break;
      u32 b[4];
      load_tiles_transposed(b, row + c * 8);
      mma(values[c], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
      mma(values[c], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
    }
  }

  // Sum of weights over the four lanes of a row.
  __device__ __forceinline__ void close() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAll, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAll, sum[r], 2);
    }
  }
};

// scores[16 x 32] += query [16 x 16] times the transpose of 16 elements of 32 keys of kPitch elements.
template <int kPitch>
__device__ __forceinline__ void add_scores(float (&scores)[4][4], const u32 (&query)[4], const bf16* keys) {
  const int lane = threadIdx.x % kWarp;
  const bf16* row = keys + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 b[4];
    load_tiles(b, row + half * 16 * kPitch);
    mma(scores[2 * half], query[0], query[1], query[2], query[3], b[0], b[1]);
    mma(scores[2 * half + 1], query[0], query[1], query[2], query[3], b[2], b[3]);
  }
}

// y [rows, kHeads, kWidth] = the splits of each pair merged by log-sum-exp, in the order of splits. Block (pair, slot).
// kThreads = 4 * columns of four: a quarter of the block takes every fourth split.
template <typename S>
__device__ __forceinline__ void merge_splits(const float* sums, const float2* marks, const int* committed,
                                             const int* valid, bf16* y, int group) {
  constexpr int kLanes = S::kWidth / 4, kParts = 4;
  __shared__ float weights[S::kSplits];
  __shared__ float4 room[kParts][kLanes];
  wait_for_predecessor();
  let_successor_start();
  const int pair = blockIdx.x, slot = blockIdx.y, pairs = group * S::kHeads, lane = threadIdx.x % kWarp;
  const int splits = spans_of<S>(committed[slot], valid[slot]).splits;
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
    const float scale = sum > 0.0f ? 1.0f / sum : 0.0f;  // a padding row of an empty slot sees nothing
    for (int s = lane; s < splits; s += kWarp) weights[s] *= scale;
  }
  __syncthreads();
  const int part = threadIdx.x / kLanes, column = threadIdx.x % kLanes;
  if (part < kParts) {
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4* from = reinterpret_cast<const float4*>(sums);
#pragma unroll 8
    for (int s = part; s < splits; s += kParts) {
      const float4 v = from[place_of<S>(slot, s, pairs, pair) * kLanes + column];
      const float w = weights[s];
      total.x += w * v.x;
      total.y += w * v.y;
      total.z += w * v.z;
      total.w += w * v.w;
    }
    room[part][column] = total;
  }
  __syncthreads();
  if (part > 0) return;
  float4 total = room[0][column];
#pragma unroll
  for (int p = 1; p < kParts; ++p) {
    total.x += room[p][column].x;
    total.y += room[p][column].y;
    total.z += room[p][column].z;
    total.w += room[p][column].w;
  }
  const int row = slot * group + pair / S::kHeads;
  bf16* to = y + static_cast<i64>(row) * S::kYStride + pair % S::kHeads * S::kWidth + column * 4;
  *reinterpret_cast<uint2*>(to) = make_uint2(pack(total.x, total.y), pack(total.z, total.w));
}

}  // namespace ddt
