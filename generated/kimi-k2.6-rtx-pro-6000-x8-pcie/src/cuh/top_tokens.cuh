// The best tokens of every draft row with their log-probs: one block a chunk of the vocabulary, then one block a row.
#pragma once
#include "top.cuh"

namespace ddt {

constexpr int kTopThreads = 256;

// Of one chunk (S::kChunk logits of row blockIdx.y): its best S::kTop keys, and its largest logit with the sum of
// exp(logit - largest). NaN and +inf make the sum NaN; nothing above -inf makes it 0.
template <typename S>
__device__ __forceinline__ void chunk_top(const typename S::Logit* logits, u64* best, float2* mass) {
  using Logit = typename S::Logit;
  constexpr int kWide = kPiece<Logit>, kPer = S::kChunk / kTopThreads;
  __shared__ TopRoom<kTopThreads, kPer, S::kTop> room;
  __shared__ float sums[kWarp];
  wait_for_predecessor();
  let_successor_start();
  const Logit* row = logits + static_cast<i64>(blockIdx.y) * S::kVocab;
  float x[kPer];
#pragma unroll
  for (int p = 0; p < kPer / kWide; ++p) {
    float piece[kWide];
    load_piece<Logit, S::kVocab>(piece, row, blockIdx.x * S::kChunk + (p * kTopThreads + threadIdx.x) * kWide);
#pragma unroll
    for (int i = 0; i < kWide; ++i) x[p * kWide + i] = piece[i];
  }
  u64 keys[kPer];
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int token = blockIdx.x * S::kChunk + (p / kWide * kTopThreads + threadIdx.x) * kWide + p % kWide;
    keys[p] = token < S::kVocab ? token_key(x[p], token) : 0;
  }
  block_top(keys, room);
  const float largest = key_logit(room.sorted[0]);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPer; ++i) sum += x[i] == -infinity() ? 0.0f : expf(x[i] - largest);
  sum = block_sum(sum, sums);
  const i64 chunk = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x < S::kTop) best[chunk * S::kTop + threadIdx.x] = room.best[threadIdx.x];
  if (threadIdx.x == 0) mass[chunk] = make_float2(largest, sum);
}

// Of one row: its best S::kTop tokens and logit - log(sum of exp over the whole row), in float32. Rows that hold NaN or
// +inf get NaN throughout, rows of -inf alone -inf.
template <typename S>
__device__ __forceinline__ void row_top(const u64* best, const float2* mass, float* top_logprobs, int* top_tokens) {
  constexpr int kPer = (S::kChunks * S::kTop + kTopThreads - 1) / kTopThreads;
  __shared__ TopRoom<kTopThreads, kPer, S::kTop> room;
  __shared__ float logsum;
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  u64 keys[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int at = i * kTopThreads + threadIdx.x;
    keys[i] = at < S::kChunks * S::kTop ? best[row * S::kChunks * S::kTop + at] : 0;
  }
  if (threadIdx.x < kWarp) {
    float largest = -infinity(), sum = 0.0f;
    for (int c = threadIdx.x; c < S::kChunks; c += kWarp) largest = fmaxf(largest, mass[row * S::kChunks + c].x);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
    for (int c = threadIdx.x; c < S::kChunks; c += kWarp) {
      const float2 part = mass[row * S::kChunks + c];
      sum += part.y == 0.0f ? 0.0f : part.y * expf(part.x - largest);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) logsum = sum == 0.0f ? 0.0f : largest + logf(sum);
  }
  block_top(keys, room);  // its barriers also publish logsum
  if (threadIdx.x < S::kTop) {
    const u64 key = room.best[threadIdx.x];
    const i64 to = row * S::kTop + threadIdx.x;
    top_logprobs[to] = key_logit(key) - logsum;
    top_tokens[to] = key_token(key);
  }
}

}  // namespace ddt
