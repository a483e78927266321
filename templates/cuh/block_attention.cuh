// Attention of the drafter: grouped queries over the context of a slot and over the rows of the block itself.
#pragma once
#include "attention.cuh"

namespace ddt {

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
