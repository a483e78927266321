// Rotary embedding, and appending to the caches of tokens. One block a row, one warp a head.
//
// A lane holds kPairs pairs of a run of kDim elements: (x[2i], x[2i + 1]) in interleaved tables, (x[i], x[i + kDim / 2]) in half
// tables (kHalf). A table has amplitude * (cos, sin) by position and pair.
#pragma once
#include "cache.cuh"
#include "rows.cuh"

namespace ddt {

template <typename S>
struct Pairs {
  float a[S::kPairs], b[S::kPairs];

  // Pairs first .. first + kPairs of a run.
  __device__ __forceinline__ void load(const bf16* run, int first) {
    if constexpr (S::kHalf) {
      load_run(run + first, a);
      load_run(run + first + S::kDim / 2, b);
    } else {
      float v[2 * S::kPairs];
      load_run(run + 2 * first, v);
#pragma unroll
      for (int i = 0; i < S::kPairs; ++i) {
        a[i] = v[2 * i];
        b[i] = v[2 * i + 1];
      }
    }
  }

  __device__ __forceinline__ void store(bf16* run, int first) const {
    if constexpr (S::kHalf) {
      store_run(run + first, a);
      store_run(run + first + S::kDim / 2, b);
    } else {
      float v[2 * S::kPairs];
#pragma unroll
      for (int i = 0; i < S::kPairs; ++i) {
        v[2 * i] = a[i];
        v[2 * i + 1] = b[i];
      }
      store_run(run + 2 * first, v);
    }
  }

  // (a, b) becomes (a cos - b sin, b cos + a sin).
  __device__ __forceinline__ void turn(const float2* turns, int first) {
#pragma unroll
    for (int i = 0; i < S::kPairs; ++i) {
      const float2 t = turns[first + i];
      const float old = a[i];
      a[i] = old * t.x - b[i] * t.y;
      b[i] = b[i] * t.x + old * t.y;
    }
  }
};

// A run of kDim elements in one warp.
template <typename S>
struct Head {
  static constexpr int kParts = (S::kDim / 2 / S::kPairs + kWarp - 1) / kWarp;
  Pairs<S> parts[kParts];

  static __device__ __forceinline__ int first(int part) { return (part * kWarp + threadIdx.x % kWarp) * S::kPairs; }
  static __device__ __forceinline__ bool inside(int part) { return first(part) < S::kDim / 2; }

  __device__ __forceinline__ void load(const bf16* run) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      if (inside(part)) parts[part].load(run, first(part));
  }

  __device__ __forceinline__ void store(bf16* run) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      if (inside(part)) parts[part].store(run, first(part));
  }

  __device__ __forceinline__ void turn(const float2* turns) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      if (inside(part)) parts[part].turn(turns, first(part));
  }

  // RMSNorm over the run, not rounded.
  __device__ __forceinline__ void norm(const Head& w) {
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      if (inside(part)) sum += squares(parts[part].a) + squares(parts[part].b);
    const float scale = rsqrtf(warp_sum(sum) / S::kDim + S::kEps);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < S::kPairs; ++i) {
        parts[part].a[i] *= scale * w.parts[part].a[i];
        parts[part].b[i] *= scale * w.parts[part].b[i];
      }
  }
};

template <typename S>
__device__ __forceinline__ const float2* turns_at(const float2* table, const int* positions, int row) {
  return table + static_cast<i64>(positions[row]) * (S::kDim / 2);
}

// y = x with every pair turned by the angle of its row.
template <typename S>
__device__ __forceinline__ void rope(const bf16* x, const float2* table, const int* positions, const int* valid, bf16* y, int group) {
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x;
  if (!is_real(valid, row, group)) return;
  const float2* turns = turns_at<S>(table, positions, row);
  for (int head = threadIdx.x / kWarp; head < S::kHeads; head += S::kThreads / kWarp) {
    Head<S> held;
    held.load(x + static_cast<i64>(row) * S::kXStride + head * S::kXPitch);
    held.turn(turns);
    held.store(y + static_cast<i64>(row) * S::kYStride + head * S::kYPitch);
  }
}

// y = rope(RMSNorm(x) * w), a norm a head.
template <typename S>
__device__ __forceinline__ void norm_rope(const bf16* x, const bf16* w, const float2* table, const int* positions, const int* valid,
                                          bf16* y, int group) {
  Head<S> scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x;
  if (!is_real(valid, row, group)) return;
  const float2* turns = turns_at<S>(table, positions, row);
  for (int head = threadIdx.x / kWarp; head < S::kHeads; head += S::kThreads / kWarp) {
    Head<S> held;
    held.load(x + static_cast<i64>(row) * S::kXStride + head * S::kXPitch);
    held.norm(scales);
    held.turn(turns);
    held.store(y + static_cast<i64>(row) * S::kYStride + head * S::kYPitch);
  }
}

// ---- appending: only rows that are real are written ----

// The token's row of the cache = [c, k].
template <typename S>
__device__ __forceinline__ void latent_append(const bf16* c, const bf16* k, const int* pages, const int* committed, const int* valid,
                                              bf16* latent, int layer, int group) {
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x, slot = row / group;
  if (!is_real(valid, row, group)) return;
  bf16* to = latent_at<S>(latent, pages, layer, slot, committed[slot] + row % group);
  for (int i = threadIdx.x; i < S::kLatent; i += S::kThreads)
    to[i] = i < S::kWidth ? c[static_cast<i64>(row) * S::kCStride + i] : k[static_cast<i64>(row) * S::kKStride + i - S::kWidth];
}

// The token's row of the cache = [RMSNorm(c) * w, rope(k)]: block (row, 0) does the former, (row, 1) the latter.
template <typename S>
__device__ __forceinline__ void norm_rope_latent(const bf16* c, const bf16* k, const bf16* w, const float2* table,
                                                 const int* positions, const int* pages, const int* committed, const int* valid,
                                                 bf16* latent, int layer, int group) {
  __shared__ float room[kWarp];
  Held<S> held, scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x, slot = row / group;
  if (!is_real(valid, row, group)) return;
  bf16* to = latent_at<S>(latent, pages, layer, slot, committed[slot] + row % group);
  if (blockIdx.y == 0) {
    held.load(c + static_cast<i64>(row) * S::kCStride);
    held.norm(scales, room);
    held.store(to);
  } else if (threadIdx.x < kWarp) {
    Head<S> key;
    key.load(k + static_cast<i64>(row) * S::kKStride);
    key.turn(turns_at<S>(table, positions, row));
    key.store(to + S::kWidth);
  }
}

// The token's place in the context = (k, v).
template <typename S>
__device__ __forceinline__ void context_append(const bf16* k, const bf16* v, const int* positions, const int* valid, bf16* context,
                                               int layer, int group) {
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x;
  if (!is_real(valid, row, group)) return;
  bf16* to = context_at<S>(context, layer, row / group, positions[row]);
  for (int i = threadIdx.x; i < S::kHeads * S::kDim; i += S::kThreads) {
    const int head = i / S::kDim, at = i % S::kDim;
    to[i] = k[static_cast<i64>(row) * S::kKStride + head * S::kKPitch + at];
    to[S::kHeads * S::kDim + i] = v[static_cast<i64>(row) * S::kVStride + head * S::kVPitch + at];
  }
}

// The token's place in the context = (rope(RMSNorm(k) * w), v).
template <typename S>
__device__ __forceinline__ void norm_rope_context(const bf16* k, const bf16* v, const bf16* w, const float2* table,
                                                  const int* positions, const int* valid, bf16* context, int layer, int group) {
  Head<S> scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x;
  if (!is_real(valid, row, group)) return;
  const float2* turns = turns_at<S>(table, positions, row);
  bf16* to = context_at<S>(context, layer, row / group, positions[row]);
  for (int head = threadIdx.x / kWarp; head < S::kHeads; head += S::kThreads / kWarp) {
    Head<S> key, value;
    key.load(k + static_cast<i64>(row) * S::kKStride + head * S::kKPitch);
    value.load(v + static_cast<i64>(row) * S::kVStride + head * S::kVPitch);
    key.norm(scales);
    key.turn(turns);
    key.store(to + head * S::kDim);
    value.store(to + (S::kHeads + head) * S::kDim);
  }
}

}  // namespace ddt
