// MLA attention in absorbed form: all heads share one key a token, [latent | turned key], and the latent is the value too.
#pragma once
#include "attention.cuh"

namespace ddt {

// Elements of a row of the cache in shared memory: whole steps of a product, and 16 bytes more, so that 8 rows of a tile lie
// in different banks.
template <typename S>
struct LatentShape {
  static constexpr int kWidth = S::kLora + S::kRope, kSteps = (kWidth + 15) / 16, kPitch = kSteps * 16 + 8;
  static constexpr int kParts = 4;  // warps that share 16 pairs: each takes a quarter of the steps and of the values
  static constexpr int kQuarter = (kSteps + kParts - 1) / kParts;
  static constexpr int kColumns = (S::kLora / 8 + kParts - 1) / kParts;
  static constexpr bool kWhole = S::kLora % (8 * kParts) == 0;  // every warp has kColumns tiles of values
  static constexpr int kStage = kTile * kPitch;                 // elements
};

// Copies tile `tile` of the slot's keys to shared memory; keys from `end` on become zeros.
template <typename S>
__device__ __forceinline__ void fetch_latents(bf16* to, const bf16* cache, const int* pages, int tile, int end) {
  using L = LatentShape<S>;
  constexpr int kChunks = L::kWidth / 8, kThreads = S::kRows / 16 * L::kParts * kWarp;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTile * kChunks; i += kThreads) {
    const int key = i / kChunks, chunk = i % kChunks, token = tile * kTile + key;
    const int page = token < end ? pages[token / S::kPage] : 0;
    const i64 row = static_cast<i64>(page) * S::kPage + token % S::kPage;
    copy_async16(to + key * L::kPitch + chunk * 8, cache + row * L::kWidth + chunk * 8, token < end);
  }
}

// One block: kRows (row, head) pairs of slot blockIdx.z over split blockIdx.x. Four warps take 16 pairs: each scores a quarter of
// the elements, the quarters are added in shared memory, and each weighs a quarter of the values. A key is seen if it is
// committed or its bit is set in the mask of the row; only tiles behind the committed tokens ask.
template <typename S>
__device__ __forceinline__ void latent_attention(const bf16* q_c, const bf16* q_rot, const bf16* latent,
                                                 const int* pages, const int* committed, const int* valid,
                                                 const u32* masks, float* sums, float2* marks, int layer, int group) {
  using L = LatentShape<S>;
  constexpr float kScale = S::kScale * kLog2e;
  extern __shared__ uint4 shared_bytes[];
  bf16* stages = reinterpret_cast<bf16*>(shared_bytes);
  float4* rooms = reinterpret_cast<float4*>(stages + S::kStages * L::kStage);
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.z, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, part = warp % L::kParts;
  const int pairs = group * S::kHeads, base = committed[slot], real = valid[slot], end = base + real;
  const Spans spans = spans_of<S>(base, real);
  const int first = spans.first + blockIdx.x * spans.each, last = min(first + spans.each, spans.first + spans.count);
  if (first >= last) return;
  const bf16* cache = latent + static_cast<i64>(layer) * S::kTokens * L::kWidth;
  const int* table = pages + slot * S::kPagesPerSlot;
  if constexpr (L::kSteps * 16 > L::kWidth) {  // the last step reaches beyond the row: its keys are zeros
    for (int i = threadIdx.x; i < S::kStages * kTile; i += S::kRows / 16 * L::kParts * kWarp)
      *reinterpret_cast<uint4*>(stages + i * L::kPitch + L::kWidth) = make_uint4(0, 0, 0, 0);
  }
  for (int s = 0; s < S::kStages; ++s) {
    if (first + s < last) fetch_latents<S>(stages + s * L::kStage, cache, table, first + s, end);
    copy_commit();
  }

  // Pairs g and g + 8 of the warp's 16; those beyond the last read it again and are not written.
  const int top = blockIdx.y * S::kRows + warp / L::kParts * 16;
  const bool active = top < pairs;
  int row[2];
  u32 query[L::kQuarter][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int pair = min(top + r * 8 + lane / 4, pairs - 1);
    row[r] = slot * group + pair / S::kHeads;
    const bf16* c = q_c + static_cast<i64>(row[r]) * S::kCStride + pair % S::kHeads * S::kLora;
    const bf16* k = q_rot + static_cast<i64>(row[r]) * S::kRotStride + pair % S::kHeads * S::kRope;
#pragma unroll
    for (int i = 0; i < L::kQuarter; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = (part * L::kQuarter + i) * 16 + half * 8 + lane % 4 * 2;
        const bf16* from = at < S::kLora ? c + at : k + (at - S::kLora);
        query[i][half * 2 + r] = at < L::kWidth ? *reinterpret_cast<const u32*>(from) : 0;
      }
    }
  }

  Running<L::kColumns> state;
  state.clear();
  float4* room = rooms + warp / L::kParts * L::kParts * 4 * kWarp;
  for (int tile = first; tile < last; ++tile) {
    bf16* keys = stages + (tile - first) % S::kStages * L::kStage;
    copy_wait<S::kStages - 1>();
    __syncthreads();
    float scores[4][4] = {};
    if (active) {
#pragma unroll
      for (int i = 0; i < L::kQuarter; ++i) {
        const int step = part * L::kQuarter + i;
        if (step < L::kSteps) add_scores<L::kPitch>(scores, query[i], keys + step * 16);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n)
        room[(part * 4 + n) * kWarp + lane] = make_float4(scores[n][0], scores[n][1], scores[n][2], scores[n][3]);
    }
    __syncthreads();
    if (active) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float4 total = room[n * kWarp + lane];
#pragma unroll
        for (int p = 1; p < L::kParts; ++p) {
          const float4 v = room[(p * 4 + n) * kWarp + lane];
          total = make_float4(total.x + v.x, total.y + v.y, total.z + v.z, total.w + v.w);
        }
        scores[n][0] = total.x * kScale;
        scores[n][1] = total.y * kScale;
        scores[n][2] = total.z * kScale;
        scores[n][3] = total.w * kScale;
      }
      if ((tile + 1) * kTile > base) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int node = tile * kTile + n * 8 + lane % 4 * 2 + e % 2 - base;
            if (node >= 0 && (node >= real || !(masks[row[e / 2] * 4 + node / 32] >> node % 32 & 1)))
              scores[n][e] = kNever;
          }
        }
      }
      state.weigh(scores);
      state.template add<L::kPitch, L::kWhole>(scores, keys + part * L::kColumns * 8, S::kLora / 8 - part * L::kColumns);
    }
    __syncthreads();  // the tile is used up
    if (tile + S::kStages < last) fetch_latents<S>(keys, cache, table, tile + S::kStages, end);
    copy_commit();
  }
  state.close();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int pair = top + r * 8 + lane / 4;
    if (pair >= pairs) continue;
    const i64 place = place_of<S>(slot, blockIdx.x, pairs, pair);
    if (part == 0 && lane % 4 == 0) marks[place] = make_float2(state.high[r], state.sum[r]);
    float* to = sums + place * S::kLora + part * L::kColumns * 8 + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < L::kColumns; ++c) {
      if (part * L::kColumns + c < S::kLora / 8)
        *reinterpret_cast<float2*>(to + c * 8) = make_float2(state.values[c][2 * r], state.values[c][2 * r + 1]);
    }
  }
}

}  // namespace ddt
