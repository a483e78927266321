// Work on whole rows: one block a row, or one block a run of a row (a head). Elements go kVector at a time: 8 (16 bytes) where
// widths and strides allow, else 1.
#pragma once
#include "device.cuh"

namespace ddt {

// ---- runs of kVector elements ----

template <int kVector>
__device__ __forceinline__ void load_run(const bf16* from, float (&v)[kVector]) {
  if constexpr (kVector == 8) {
    const uint4 bits = load16(from);
    const u32 pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = low_float(pairs[i]);
      v[2 * i + 1] = high_float(pairs[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] = to_float(from[i]);
  }
}

template <int kVector>
__device__ __forceinline__ void store_run(bf16* to, const float (&v)[kVector]) {
  if constexpr (kVector == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = to_bf16(v[i]);
  }
}

// Rounds to bfloat16 and back: what a value is once it was stored.
template <int kVector>
__device__ __forceinline__ void round_run(float (&v)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = to_float(to_bf16(v[i]));
}

template <int kVector>
__device__ __forceinline__ float squares(const float (&v)[kVector]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum += v[i] * v[i];
  return sum;
}

// Copies `width` elements, or writes zeros where `from` is null.
template <typename S>
__device__ __forceinline__ void copy_row(bf16* to, const bf16* from) {
  for (int i = threadIdx.x * S::kVector; i < S::kWidth; i += S::kThreads * S::kVector) {
    float v[S::kVector] = {};
    if (from != nullptr) load_run(from + i, v);
    store_run(to + i, v);
  }
}

// Row `row` is the (row % group)-th of its slot; those from valid[slot] on are padding.
__device__ __forceinline__ bool is_real(const int* valid, int row, int group) { return row % group < valid[row / group]; }

// ---- sums and norms ----

// The elements of a row (or head) of kWidth that a thread holds while it is normed.
template <typename S>
struct Held {
  static constexpr int kRuns = (S::kWidth / S::kVector + S::kThreads - 1) / S::kThreads;
  float v[kRuns][S::kVector];

  static __device__ __forceinline__ int place(int run) { return (run * S::kThreads + threadIdx.x) * S::kVector; }

  __device__ __forceinline__ void load(const bf16* from) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
      if (place(run) < S::kWidth) load_run(from + place(run), v[run]);
  }

  __device__ __forceinline__ void store(bf16* to) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
      if (place(run) < S::kWidth) store_run(to + place(run), v[run]);
  }

  // v = v + other, rounded as the sum is stored.
  __device__ __forceinline__ void add(const Held& other) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
#pragma unroll
      for (int i = 0; i < S::kVector; ++i) v[run][i] += other.v[run][i];
      round_run(v[run]);
    }
  }

  // v = v / sqrt(mean(v^2) + eps) * w over the block's elements (RMSNorm), not rounded.
  __device__ __forceinline__ void norm(const Held& w, float* room) {
    float sum = 0.0f;
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
      if (place(run) < S::kWidth) sum += squares(v[run]);
    const float scale = rsqrtf(block_sum(sum, room) / S::kWidth + S::kEps);
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int i = 0; i < S::kVector; ++i) v[run][i] *= scale * w.v[run][i];
  }
};

// y = a + b.
template <typename S>
__device__ __forceinline__ void add(const bf16* a, const bf16* b, bf16* y) {
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  Held<S> sum, other;
  sum.load(a + row * S::kAStride);
  other.load(b + row * S::kBStride);
  sum.add(other);
  sum.store(y + row * S::kYStride);
}

// y = x / sqrt(mean(x^2) + eps) * w over the last axis, rounded once; block (row, head).
template <typename S>
__device__ __forceinline__ void rms_norm(const bf16* x, const bf16* w, bf16* y) {
  __shared__ float room[kWarp];
  Held<S> held, scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  held.load(x + static_cast<i64>(blockIdx.x) * S::kXStride + blockIdx.y * S::kXPitch);
  held.norm(scales, room);
  held.store(y + static_cast<i64>(blockIdx.x) * S::kYStride + blockIdx.y * S::kYPitch);
}

// y = a + b and h = RMSNorm(y) * w: the residual is rounded before it is normed, as all others read it.
template <typename S>
__device__ __forceinline__ void add_norm(const bf16* a, const bf16* b, const bf16* w, bf16* y, bf16* h) {
  __shared__ float room[kWarp];
  Held<S> held, other, scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  held.load(a + row * S::kAStride);
  other.load(b + row * S::kBStride);
  held.add(other);
  held.store(y + row * S::kYStride);
  held.norm(scales, room);
  held.store(h + row * S::kHStride);
}

// h[i] = RMSNorm(x[index[i]]) * w; an index outside of the rows gives no row.
template <typename S>
__device__ __forceinline__ void take_norm(const bf16* x, const bf16* w, const int* index, bf16* h, int rows) {
  __shared__ float room[kWarp];
  Held<S> held, scales;
  scales.load(w);
  wait_for_predecessor();
  let_successor_start();
  const int row = index[blockIdx.x];
  if (static_cast<u32>(row) >= static_cast<u32>(rows)) return;
  held.load(x + static_cast<i64>(row) * S::kXStride);
  held.norm(scales, room);
  held.store(h + static_cast<i64>(blockIdx.x) * S::kHStride);
}

// ---- copies ----

// x = table[token - first]; zeros for a token that this rank does not hold.
template <typename S>
__device__ __forceinline__ void embedding(const int* tokens, const bf16* table, bf16* x, int first) {
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  const int token = tokens[row] - first;
  const bool held = static_cast<u32>(token) < static_cast<u32>(S::kTokens);
  copy_row<S>(x + row * S::kXStride, held ? table + static_cast<i64>(token) * S::kWidth : nullptr);
}

// Columns index * kWidth .. of `features` = x.
template <typename S>
__device__ __forceinline__ void tap(const bf16* x, bf16* features, int index) {
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  copy_row<S>(features + row * S::kYStride + index * S::kWidth, x + row * S::kXStride);
}

// y[i] = x[index[i]]; an index outside of the rows gives no row.
template <typename S>
__device__ __forceinline__ void take_rows(const bf16* x, const int* index, bf16* y, int rows) {
  wait_for_predecessor();
  let_successor_start();
  const int row = index[blockIdx.x];
  if (static_cast<u32>(row) >= static_cast<u32>(rows)) return;
  copy_row<S>(y + static_cast<i64>(blockIdx.x) * S::kYStride, x + static_cast<i64>(row) * S::kXStride);
}

// y = silu(gate) * up, rounded once.
template <typename S>
__device__ __forceinline__ void swiglu(const bf16* gate, const bf16* up, bf16* y) {
  wait_for_predecessor();
  let_successor_start();
  const i64 row = blockIdx.x;
  Held<S> g, u;
  g.load(gate + row * S::kGateStride);
  u.load(up + row * S::kUpStride);
#pragma unroll
  for (int run = 0; run < Held<S>::kRuns; ++run)
#pragma unroll
    for (int i = 0; i < S::kVector; ++i) g.v[run][i] = silu(g.v[run][i]) * u.v[run][i];
  g.store(y + row * S::kYStride);
}

}  // namespace ddt
