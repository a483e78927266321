// MLA attention in absorbed form: all heads share one key a token, [latent | turned key], and the latent is the value too.
#pragma once
#include "attention.cuh"

namespace ddt {

// How eight warps share a tile of 32 keys and kPairs (row, head) pairs. Scores: two warps a quarter of the elements, each for
// half of the keys; weights: a few lanes a pair; values: each warp an eighth of the columns. So every key is read from
// shared memory once as key and once as value, whatever kPairs is.
template <typename S>
struct LatentShape {
  static constexpr int kWarps = 8, kThreads = kWarps * kWarp, kQuarters = 4;
  static constexpr int kWidth = S::kLora + S::kRope, kSteps = (kWidth + 15) / 16;
  static constexpr int kPitch = kSteps * 16 + 8;  // whole steps, and 16 bytes more: 8 rows lie in different banks
  static constexpr int kStage = kTile * kPitch;   // elements of a tile
  static constexpr int kQuarter = (kSteps + kQuarters - 1) / kQuarters;
  static constexpr int kColumns = (S::kLora / 8 + kWarps - 1) / kWarps;
  static constexpr bool kWhole = S::kLora % (8 * kWarps) == 0;  // every warp has kColumns tiles of values
  static constexpr int kProducts = S::kPairs / 16;
  static constexpr int kLanes = kThreads / S::kPairs, kKeys = kTile / kLanes;  // of a pair, of a lane, when weighing
  static constexpr int kScorePitch = kTile + 8, kWeightPitch = kTile + 8;
};

// Shared memory of a block, in this order (`latent_shared` of the emitter counts it).
template <typename S>
struct LatentRoom {
  using L = LatentShape<S>;
  bf16* keys;     // [kStages][kTile][kPitch]
  float* scores;  // [kQuarters][kPairs][kScorePitch]
  bf16* weights;  // [kPairs][kWeightPitch]
  float* fades;   // [kPairs]

  __device__ __forceinline__ explicit LatentRoom(uint4* bytes) {
    keys = reinterpret_cast<bf16*>(bytes);
    scores = reinterpret_cast<float*>(keys + S::kStages * L::kStage);
    weights = reinterpret_cast<bf16*>(scores + L::kQuarters * S::kPairs * L::kScorePitch);
    fades = reinterpret_cast<float*>(weights + S::kPairs * L::kWeightPitch);
  }
};

// Copies tile `tile` of the slot's keys to shared memory, a warp a key; keys from `end` on become zeros.
template <typename S>
__device__ __forceinline__ void fetch_latents(bf16* to, const bf16* cache, const int* pages, int tile, int end) {
  using L = LatentShape<S>;
#pragma unroll
  for (int i = 0; i < kTile / L::kWarps; ++i) {
    const int key = i * L::kWarps + threadIdx.x / kWarp, token = tile * kTile + key;
    const int page = token < end ? pages[token / S::kPage] : 0;
    const bf16* from = cache + (static_cast<i64>(page) * S::kPage + token % S::kPage) * L::kWidth;
#pragma unroll
    for (int chunk = threadIdx.x % kWarp; chunk < L::kWidth / 8; chunk += kWarp)
      copy_async16(to + key * L::kPitch + chunk * 8, from + chunk * 8, token < end);
  }
}

// Copies the queries [q_c | q_rot] of pairs `top` .. `top` + kPairs to shared memory, where there is room for a tile; zeros
// behind the last pair of the slot.
template <typename S>
__device__ __forceinline__ void fetch_queries(bf16* to, const bf16* q_c, const bf16* q_rot, int slot, int group,
                                              int top) {
  using L = LatentShape<S>;
  static_assert(S::kPairs <= kTile, "as much room as a tile has");
#pragma unroll
  for (int i = 0; i < S::kPairs / L::kWarps; ++i) {
    const int own = i * L::kWarps + threadIdx.x / kWarp, pair = top + own;
    const bool real = pair < group * S::kHeads;
    const i64 row = real ? slot * group + pair / S::kHeads : 0;
    const bf16* c = q_c + row * S::kCStride + pair % S::kHeads * S::kLora;
    const bf16* k = q_rot + row * S::kRotStride + pair % S::kHeads * S::kRope;
    for (int at = threadIdx.x % kWarp * 8; at < L::kWidth; at += kWarp * 8)
      copy_async16(to + own * L::kPitch + at, at < S::kLora ? c + at : k + (at - S::kLora), real);
  }
}

// Scores of a quarter of the elements and half of the keys.
template <typename S>
__device__ __forceinline__ void score(float* scores, const u32 (&query)[S::kPairs / 16][LatentShape<S>::kQuarter][4],
                                      const bf16* keys, int quarter, int half) {
  using L = LatentShape<S>;
  const int lane = threadIdx.x % kWarp;
  const bf16* from = keys + (half * 16 + lane / 16 * 8 + lane % 8) * L::kPitch + lane / 8 % 2 * 8;
  float sums[L::kProducts][2][4] = {};
#pragma unroll
  for (int i = 0; i < L::kQuarter; ++i) {
    const int step = quarter * L::kQuarter + i;
    if (L::kSteps % L::kQuarters && step >= L::kSteps) break;
    u32 b[4];
    load_tiles(b, from + step * 16);
#pragma unroll
    for (int m = 0; m < L::kProducts; ++m) {
      const u32(&a)[4] = query[m][i];
      mma(sums[m][0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma(sums[m][1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
  float* to = scores + (quarter * S::kPairs + lane / 4) * L::kScorePitch + half * 16 + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < L::kProducts; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(to + (m * 16 + r * 8) * L::kScorePitch + n * 8) =
            make_float2(sums[m][n][2 * r], sums[m][n][2 * r + 1]);
    }
  }
}

// One block: kPairs pairs of slot blockIdx.z over split blockIdx.x. A key is seen if it is committed or its bit is set in the
// mask of the row; only tiles that reach behind the committed tokens ask.
template <typename S>
__device__ __forceinline__ void latent_attention(const bf16* q_c, const bf16* q_rot, const bf16* latent,
                                                 const int* pages, const int* committed, const int* valid,
                                                 const u32* masks, float* sums, float2* marks, int layer, int group) {
  using L = LatentShape<S>;
  constexpr float kScale = S::kScale * kLog2e;
  extern __shared__ uint4 shared_bytes[];
  const LatentRoom<S> room(shared_bytes);
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.z, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int pairs = group * S::kHeads, base = committed[slot], real = valid[slot], end = base + real;
  const Spans spans = spans_of<S>(base, real);
  const int first = blockIdx.x * spans.each, last = min(first + spans.each, spans.count);
  if (first >= last) return;
  const bf16* cache = latent + static_cast<i64>(layer) * S::kTokens * L::kWidth;
  const int* table = pages + slot * S::kPagesPerSlot;
  if constexpr (L::kSteps * 16 > L::kWidth) {  // the last step reaches beyond the row: its keys are zeros
    for (int i = threadIdx.x; i < S::kStages * kTile; i += L::kThreads)
      *reinterpret_cast<uint4*>(room.keys + i * L::kPitch + L::kWidth) = make_uint4(0, 0, 0, 0);
  }
  // The queries pass through the room of the last stage, whose tile is fetched when they are in registers.
  const int top = blockIdx.y * S::kPairs;
  bf16* passage = room.keys + (S::kStages - 1) * L::kStage;
  fetch_queries<S>(passage, q_c, q_rot, slot, group, top);
  copy_commit();
#pragma unroll 1
  for (int s = 0; s < S::kStages - 1; ++s) {
    if (first + s < last) fetch_latents<S>(room.keys + s * L::kStage, cache, table, first + s, end);
    copy_commit();
  }
  copy_wait<S::kStages - 1>();
  __syncthreads();
  u32 query[L::kProducts][L::kQuarter][4];
#pragma unroll
  for (int m = 0; m < L::kProducts; ++m) {
#pragma unroll
    for (int i = 0; i < L::kQuarter; ++i) {
      const int step = min(warp / 2 * L::kQuarter + i, L::kSteps - 1);
      load_tiles(query[m][i], passage + (m * 16 + lane % 16) * L::kPitch + step * 16 + lane / 16 * 8);
    }
  }
  __syncthreads();
  if (first + S::kStages - 1 < last) fetch_latents<S>(passage, cache, table, first + S::kStages - 1, end);
  copy_commit();

  const int own = threadIdx.x / L::kLanes, at = threadIdx.x % L::kLanes * L::kKeys;  // the pair and keys it weighs
  const u32* mask = masks + static_cast<i64>(slot * group + min(top + own, pairs - 1) / S::kHeads) * 4;
  float high = kNever, sum[L::kKeys / 2] = {};  // a sum for two keys, so that its order does not depend on kPairs
  float values[L::kProducts][L::kColumns][4] = {};
#pragma unroll 1
  for (int tile = first; tile < last; ++tile) {
    bf16* keys = room.keys + (tile - first) % S::kStages * L::kStage;
    copy_wait<S::kStages - 1>();
    __syncthreads();
    score<S>(room.scores, query, keys, warp / 2, warp % 2);
    __syncthreads();

    float weights[L::kKeys], peak = high;
#pragma unroll
    for (int q = 0; q < L::kQuarters; ++q) {
      float part[L::kKeys];
      load_floats(part, room.scores + (q * S::kPairs + own) * L::kScorePitch + at);
#pragma unroll
      for (int e = 0; e < L::kKeys; ++e) weights[e] = q ? weights[e] + part[e] : part[e];
    }
    const int behind = tile * kTile + at - base;  // the lane's first key among the rows of the step
#pragma unroll
    for (int e = 0; e < L::kKeys; ++e) {
      const int node = behind + e;
      const bool hidden = node >= 0 && (node >= real || !(mask[node / 32] >> node % 32 & 1));
      weights[e] = hidden ? kNever : weights[e] * kScale;
      peak = fmaxf(peak, weights[e]);
    }
#pragma unroll
    for (int step = 1; step < L::kLanes; step *= 2) peak = fmaxf(peak, __shfl_xor_sync(kAll, peak, step));
    const float fade = exp2f(high - peak);
    high = peak;
    u32* to = reinterpret_cast<u32*>(room.weights + own * L::kWeightPitch + at);
#pragma unroll
    for (int e = 0; e < L::kKeys; e += 2) {
      const float one = exp2f(weights[e] - peak), two = exp2f(weights[e + 1] - peak);
      sum[e / 2] = sum[e / 2] * fade + (one + two);
      to[e / 2] = pack(one, two);
    }
    if (at == 0) room.fades[own] = fade;
    __syncthreads();

#pragma unroll
    for (int m = 0; m < L::kProducts; ++m) {
      const float fades[2] = {room.fades[m * 16 + lane / 4], room.fades[m * 16 + 8 + lane / 4]};
#pragma unroll
      for (int c = 0; c < L::kColumns; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[m][c][e] *= fades[e / 2];
      }
    }
    u32 a[L::kProducts][2][4];
#pragma unroll
    for (int m = 0; m < L::kProducts; ++m) {
      const bf16* from = room.weights + (m * 16 + lane % 16) * L::kWeightPitch + lane / 16 * 8;
      load_tiles(a[m][0], from);
      load_tiles(a[m][1], from + 16);
    }
#pragma unroll
    for (int c = 0; c < L::kColumns; ++c) {
      if (!L::kWhole && warp * L::kColumns + c >= S::kLora / 8) break;
      u32 b[4];
      load_tiles_transposed(b, keys + lane * L::kPitch + (warp * L::kColumns + c) * 8);
#pragma unroll
      for (int m = 0; m < L::kProducts; ++m) {
        mma(values[m][c], a[m][0][0], a[m][0][1], a[m][0][2], a[m][0][3], b[0], b[1]);
        mma(values[m][c], a[m][1][0], a[m][1][1], a[m][1][2], a[m][1][3], b[2], b[3]);
      }
    }
    __syncthreads();  // the tile is used up
    if (tile + S::kStages < last) fetch_latents<S>(keys, cache, table, tile + S::kStages, end);
    copy_commit();
  }

  float total = L::kKeys == 4 ? sum[0] + sum[L::kKeys / 2 - 1] : sum[0];
#pragma unroll
  for (int step = 1; step < L::kLanes; step *= 2) total += __shfl_xor_sync(kAll, total, step);
  if (at == 0 && top + own < pairs) marks[place_of<S>(slot, blockIdx.x, pairs, top + own)] = make_float2(high, total);
#pragma unroll
  for (int m = 0; m < L::kProducts; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int pair = top + m * 16 + r * 8 + lane / 4;
      if (pair >= pairs) continue;
      float* to = sums + place_of<S>(slot, blockIdx.x, pairs, pair) * S::kLora + warp * L::kColumns * 8 + lane % 4 * 2;
#pragma unroll
      for (int c = 0; c < L::kColumns; ++c) {
        if (L::kWhole || warp * L::kColumns + c < S::kLora / 8)
          *reinterpret_cast<float2*>(to + c * 8) = make_float2(values[m][c][2 * r], values[m][c][2 * r + 1]);
      }
    }
  }
}

}  // namespace ddt
