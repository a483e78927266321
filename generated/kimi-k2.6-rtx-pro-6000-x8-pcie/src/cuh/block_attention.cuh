// Attention of the drafter: grouped queries over the context of a slot and over the rows of the block itself.
#pragma once
#include "attention.cuh"

namespace ddt {

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
          scores[n][e] = exp2f(scores[n][e] - top);
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

template <typename S>
struct BlockShape {
  static constexpr int kShare = S::kHeads / S::kKvHeads;  // query heads of a key head
  static constexpr int kSteps = (S::kDim + 15) / 16, kPitch = kSteps * 16 + 8;
  static constexpr int kThreads = S::kRows / 16 * kWarp;
  static constexpr int kStage = 2 * kTile * kPitch;  // elements: keys, then values
};

// Copies the keys and values of tile `tile` and one key head. Tokens before `base` lie in the context, a ring of kTokens a slot;
// the block's rows behind them in k and v. What is not in `low` .. `end` becomes zeros.
template <typename S>
__device__ __forceinline__ void fetch_block(bf16* to, const bf16* context, const bf16* k, const bf16* v, int tile,
                                            int low, int base, int end) {
  using B = BlockShape<S>;
  constexpr int kChunks = S::kDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < 2 * kTile * kChunks; i += B::kThreads) {
    const int key = i / kChunks % kTile, value = i / (kChunks * kTile), chunk = i % kChunks, token = tile * kTile + key;
    const bool seen = token >= low && token < end;
    const bf16* from = context;
    if (seen && token < base) from += (static_cast<i64>(token % S::kTokens) * 2 + value) * S::kKvHeads * S::kDim;
    if (seen && token >= base) from = value ? v + (token - base) * S::kVStride : k + (token - base) * S::kKStride;
    copy_async16(to + (value * kTile + key) * B::kPitch + chunk * 8, from + chunk * 8, seen);
  }
}

// One block: kRows (row, head) pairs of one slot and key head (blockIdx.z) over split blockIdx.x. Row i of the slot stands at
// position committed + i and sees kWindow positions back, itself included (all, where kWindow is 0), and of the block all rows
// or, where kCausal, those up to itself.
template <typename S>
__device__ __forceinline__ void block_attention(const bf16* q, const bf16* k, const bf16* v, const bf16* context,
                                                const int* committed, const int* valid, float* sums, float2* marks,
                                                int layer, int group) {
  using B = BlockShape<S>;
  constexpr float kScale = S::kScale * kLog2e;
  extern __shared__ uint4 shared_bytes[];
  bf16* stages = reinterpret_cast<bf16*>(shared_bytes);
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.z / S::kKvHeads, kv = blockIdx.z % S::kKvHeads, lane = threadIdx.x % kWarp;
  const int pairs = group * B::kShare, base = committed[slot], end = base + valid[slot];
  const int low = S::kWindow > 0 ? max(0, base + 1 - S::kWindow) : 0;
  const Spans spans = spans_of<S>(base, valid[slot]);
  const int first = spans.first + blockIdx.x * spans.each, last = min(first + spans.each, spans.first + spans.count);
  if (first >= last) return;
  const i64 token = S::kBase + (static_cast<i64>(layer) * S::kSlots + slot) * S::kTokens;
  context += (token * 2 * S::kKvHeads + kv) * S::kDim;
  k += static_cast<i64>(slot) * group * S::kKStride + kv * S::kDim;
  v += static_cast<i64>(slot) * group * S::kVStride + kv * S::kDim;
  if constexpr (B::kSteps * 16 > S::kDim) {  // the last step reaches beyond the row: its keys are zeros
    for (int i = threadIdx.x; i < S::kStages * 2 * kTile; i += B::kThreads)
      *reinterpret_cast<uint4*>(stages + i * B::kPitch + S::kDim) = make_uint4(0, 0, 0, 0);
  }
  for (int s = 0; s < S::kStages; ++s) {
    if (first + s < last) fetch_block<S>(stages + s * B::kStage, context, k, v, first + s, low, base, end);
    copy_commit();
  }

  // Pairs g and g + 8 of the warp's 16; those beyond the last read it again and are not written.
  const int top = blockIdx.y * S::kRows + threadIdx.x / kWarp * 16;
  const bool active = top < pairs;
  int row[2];
  u32 query[B::kSteps][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int pair = min(top + r * 8 + lane / 4, pairs - 1);
    row[r] = pair / B::kShare;
    const bf16* from = q + static_cast<i64>(slot * group + row[r]) * S::kQStride +
                       (kv * B::kShare + pair % B::kShare) * S::kDim;
#pragma unroll
    for (int i = 0; i < B::kSteps; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = i * 16 + half * 8 + lane % 4 * 2;
        query[i][half * 2 + r] = at < S::kDim ? *reinterpret_cast<const u32*>(from + at) : 0;
      }
    }
  }

  Running<S::kDim / 8> state;
  state.clear();
  for (int tile = first; tile < last; ++tile) {
    bf16* keys = stages + (tile - first) % S::kStages * B::kStage;
    copy_wait<S::kStages - 1>();
    __syncthreads();
    if (active) {
      float scores[4][4] = {};
#pragma unroll
      for (int i = 0; i < B::kSteps; ++i) add_scores<B::kPitch>(scores, query[i], keys + i * 16);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = row[e / 2], at = tile * kTile + n * 8 + lane % 4 * 2 + e % 2;
          const bool hidden = at < low || at >= end || (S::kCausal && at > base + i) ||
                              (S::kWindow > 0 && at <= base + i - S::kWindow);
          scores[n][e] = hidden ? kNever : scores[n][e] * kScale;
        }
      }
      state.weigh(scores);
      state.template add<B::kPitch, true>(scores, keys + kTile * B::kPitch, 0);
    }
    __syncthreads();  // the tile is used up
    if (tile + S::kStages < last) fetch_block<S>(keys, context, k, v, tile + S::kStages, low, base, end);
    copy_commit();
  }
  state.close();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int pair = top + r * 8 + lane / 4;
    if (pair >= pairs) continue;
    const int head = kv * B::kShare + pair % B::kShare;
    const i64 place = place_of<S>(slot, blockIdx.x, group * S::kHeads, row[r] * S::kHeads + head);
    if (lane % 4 == 0) marks[place] = make_float2(state.high[r], state.sum[r]);
    float* to = sums + place * S::kDim + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < S::kDim / 8; ++c)
      *reinterpret_cast<float2*>(to + c * 8) = make_float2(state.values[c][2 * r], state.values[c][2 * r + 1]);
  }
}

}  // namespace ddt
