// The largest of many logits, in one exact order: larger logit first, equal logits smaller token id first.
#pragma once
#include "device.cuh"

namespace ddt {

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// Place of a logit in that order as one number: larger is better, no two tokens share one, 0 is no token.
__device__ __forceinline__ u64 token_key(float logit, int token) {
  const u32 bits = __float_as_uint(logit + 0.0f);  // -0 becomes 0: they are equal
  const u32 order = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<u64>(order) << 32 | ~static_cast<u32>(token);
}
__device__ __forceinline__ int key_token(u64 key) { return static_cast<int>(~static_cast<u32>(key)); }
__device__ __forceinline__ float key_logit(u64 key) {
  const u32 order = static_cast<u32>(key >> 32);
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// 16 bytes of logits as floats.
__device__ __forceinline__ void unpack(float (&x)[4], uint4 v) {
  x[0] = __uint_as_float(v.x);
  x[1] = __uint_as_float(v.y);
  x[2] = __uint_as_float(v.z);
  x[3] = __uint_as_float(v.w);
}
__device__ __forceinline__ void unpack(float (&x)[8], uint4 v) {
  x[0] = low_float(v.x), x[1] = high_float(v.x);
  x[2] = low_float(v.y), x[3] = high_float(v.y);
  x[4] = low_float(v.z), x[5] = high_float(v.z);
  x[6] = low_float(v.w), x[7] = high_float(v.w);
}
__device__ __forceinline__ float logit_value(float x) { return x; }
__device__ __forceinline__ float logit_value(bf16 x) { return to_float(x); }

template <typename Logit>
constexpr int kPiece = 16 / static_cast<int>(sizeof(Logit));  // logits of one 16-byte load

// kPiece logits of a row from `token` on; -inf behind the vocabulary. Rows that are not whole pieces are read singly.
template <typename Logit, int kVocab>
__device__ __forceinline__ void load_piece(float (&x)[kPiece<Logit>], const Logit* row, int token) {
  if (kVocab % kPiece<Logit> == 0) {
    if (token < kVocab) {
      unpack(x, load16(row + token));
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kPiece<Logit>; ++i) x[i] = token + i < kVocab ? logit_value(row[token + i]) : -infinity();
}

__device__ __forceinline__ u64 larger(u64 a, u64 b) { return a < b ? b : a; }

__device__ __forceinline__ u64 warp_largest(u64 key) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) key = larger(key, __shfl_xor_sync(kAll, key, step));
  return key;
}

// Sorts one key a thread over the block, largest first: thread t gets number t. Bitonic; `room` holds kThreads keys.
template <int kThreads>
__device__ __forceinline__ u64 block_sort(u64 key, u64* room) {
  const int me = threadIdx.x;
#pragma unroll
  for (int run = 2; run <= kThreads; run *= 2) {
#pragma unroll
    for (int step = run / 2; step > 0; step /= 2) {
      u64 other;
      if (step >= kWarp) {
        __syncthreads();
        room[me] = key;
        __syncthreads();
        other = room[me ^ step];
      } else {
        other = __shfl_xor_sync(kAll, key, step);
      }
      const bool first = (me & step) == 0, falling = (me & run) == 0;
      key = (key < other) == (first == falling) ? other : key;
    }
  }
  return key;
}

// Room in shared memory for block_top.
template <int kThreads, int kPer, int kTop>
struct TopRoom {
  u64 best[kTop];               // the result, largest first; 0 where there are fewer keys
  u64 sorted[kThreads];         // the threads' largest keys, largest first
  u64 found[kTop * kPer];
  int count;
};

// The kTop largest of the kPer keys of each thread, largest first, into room.best. Keys differ, except that 0 is none.
// At least kTop keys reach the kTop-th largest of the threads' own maxima, and only kTop threads can hold them: few are
// left to be ranked, whatever the keys are.
template <int kThreads, int kPer, int kTop>
__device__ __forceinline__ void block_top(const u64 (&keys)[kPer], TopRoom<kThreads, kPer, kTop>& room) {
  static_assert(kTop <= kThreads, "one maximum a thread");
  u64 most = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) most = larger(most, keys[i]);
  const u64 sorted = block_sort<kThreads>(most, room.sorted);
  __syncthreads();
  room.sorted[threadIdx.x] = sorted;
  if (threadIdx.x == 0) room.count = 0;
  if (threadIdx.x < kTop) room.best[threadIdx.x] = 0;
  __syncthreads();
  const u64 least = larger(room.sorted[kTop - 1], 1);
  if (most >= least) {
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (keys[i] >= least) room.found[atomicAdd(&room.count, 1)] = keys[i];
  }
  __syncthreads();
  const int count = room.count;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const u64 mine = room.found[i];
    int rank = 0;
    for (int j = 0; j < count; ++j) rank += room.found[j] > mine;
    if (rank < kTop) room.best[rank] = mine;
  }
  __syncthreads();
}

}  // namespace ddt
