// y[row, n] = sum over k of x[row, k] W[n, k] for few rows: weights are streamed once, straight into registers.
//
// A weight row is a row of the 16 x 8 product of mma.m16n8k16 and a token is a column. The order of k inside a product is free as
// long as both sides agree, so lane (g, t) loads the eight neighbours W[n + g][k + 8t ..] with one instruction and the same eight of
// token g; product j takes elements 4j .. 4j + 3. K is cut into stripes of 64 (full 128-byte lines); slice s, the work of one warp,
// has stripes s, s + kSlices, ... A slice is summed in order of k, slices in order within a plane of kPlane slices, then planes in
// order: an order that depends on the shape of W alone, whatever the number of rows and the cut into blocks.
#pragma once
#include "device.cuh"

namespace ddt {

constexpr int kStripe = 64;  // k of one line of weights
constexpr int kStep = 32;    // k of one load of a warp

// What follows from the constants of a stage: kOutputs, kInputs (N, K of one head); kXStride, kXHead, kYStride, kYHead (elements
// from row to row and from head to head); kVector (elements of an access that alignment allows: 8 or 1); kSlices, kPlane;
// kPlaneRows (rows of a plane in memory), kLeave (planes are left for the next stage to add up); and of a variant: kRows (tokens of
// a block), kTiles (16-row tiles of a warp), kRowWarps (warps of a block over weight rows), kSplit (blocks over K; the rest of
// gridDim.z are blocks over tokens), kSerial (a warp sums all slices of its block, one after the other; otherwise each has a warp),
// kAhead (steps of weights in flight), kUnit (token tiles loaded together), kUnitsAhead (such units in flight), kPass (token tiles
// summed at a time).
template <typename S>
struct LinearShape : S {
  static constexpr int kColumns = S::kRows / 8;
  static constexpr int kUnits = kColumns / S::kUnit;
  static constexpr int kStripes = (S::kInputs + kStripe - 1) / kStripe;
  static constexpr int kSteps = 2 * ((kStripes + S::kSlices - 1) / S::kSlices);
  static constexpr bool kWhole = S::kInputs % (kStripe * S::kSlices) == 0;
  static constexpr int kBlockSlices = S::kSlices / S::kSplit;
  static constexpr int kSliceWarps = S::kSerial ? 1 : kBlockSlices;
  static constexpr int kPlaneParts = S::kSerial ? 1 : S::kPlane;  // sums of a plane that meet in shared memory
  static constexpr int kAllSteps = S::kSerial ? kSteps * kBlockSlices : kSteps;
  static constexpr int kPlanes = S::kSlices / S::kPlane;
  static constexpr int kWarpRows = 16 * S::kTiles;
  static constexpr int kBlockRows = kWarpRows * S::kRowWarps;
  static constexpr bool kRagged = S::kOutputs % kBlockRows != 0;
  static constexpr int kThreads = kWarp * kSliceWarps * S::kRowWarps;
  static constexpr int kPitch = kBlockRows + 4;  // floats from token to token in shared memory: no two lanes in one bank
  static constexpr int kShared = kSliceWarps * S::kPass * 8 * kPitch * 4;

  static_assert(kColumns % S::kUnit == 0 && kColumns % S::kPass == 0 && S::kSlices % S::kPlane == 0);
  static_assert(kBlockSlices % S::kPlane == 0 && S::kSlices % S::kSplit == 0);
  static_assert(S::kAhead * kUnits % S::kUnitsAhead == 0, "the ring of activations must close with that of weights");
  static_assert(!S::kSerial || (kBlockSlices == S::kPlane && kSteps % S::kAhead == 0), "a block that is serial sums one plane");

  // First k of step i of a warp, from that of its first step.
  __device__ static constexpr int k_of(int i) {
    const int within = i % kSteps;
    return i / kSteps * kStripe + within / 2 * S::kSlices * kStripe + within % 2 * kStep;
  }
};

__device__ __forceinline__ void put(bf16* y, float value) { *y = to_bf16(value); }
__device__ __forceinline__ void put(float* y, float value) { *y = value; }

// The first `left` (or eight, if fewer) of eight elements one by one, zeros behind them: for odd widths.
__device__ __forceinline__ uint4 load_singly(const bf16* from, int left) {
  u32 bits[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) bits[i] = i < left ? from[i] : 0;
  return {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16, bits[6] | bits[7] << 16};
}

// The last of kSplit blocks to finish the same outputs adds up the planes of all of them. `tickets`: a zero for every block over
// weight rows, and zero again afterwards. Returns whether this block is the last.
template <int kSplit>
__device__ __forceinline__ bool last_of(int* ticket) {
  __shared__ int arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived = atomicAdd(ticket, 1);
    if (arrived == kSplit - 1) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return arrived == kSplit - 1;
}

template <typename S, typename Y>
__device__ __forceinline__ void linear_body(const bf16* x, const bf16* w, Y* y, float* planes, int* tickets, int rows) {
  using L = LinearShape<S>;
  extern __shared__ uint4 shared_bytes[];
  float* const part = reinterpret_cast<float*>(shared_bytes);
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int own_slice = warp % L::kSliceWarps, row_warp = warp / L::kSliceWarps, head = blockIdx.y;
  const int cut = blockIdx.z % S::kSplit, first_token = blockIdx.z / S::kSplit * S::kRows;
  const int first_k = (cut * L::kBlockSlices + own_slice) * kStripe + 8 * t;
  const int first_n = blockIdx.x * L::kBlockRows;
  const int own_n = first_n + row_warp * L::kWarpRows + g;

  // Rows past the end are read as the last one and dropped.
  const int near_n = L::kRagged && own_n >= S::kOutputs ? S::kOutputs - 1 : own_n;
  const bf16* const weights = w + (static_cast<i64>(head) * S::kOutputs + near_n) * S::kInputs + first_k;
  int step_of_row[2 * S::kTiles];
#pragma unroll
  for (int r = 0; r < 2 * S::kTiles; ++r) {
    const int n = own_n + 8 * r;
    step_of_row[r] = L::kRagged && n >= S::kOutputs ? (S::kOutputs - 1 - near_n) * S::kInputs : 8 * r * S::kInputs;
  }
  const bf16* const own_x = x + ((first_token + g) * S::kXStride + head * S::kXHead + first_k);

  uint4 a[S::kAhead][2 * S::kTiles];
  uint4 b[S::kUnitsAhead][S::kUnit];
  float d[S::kTiles][L::kColumns][4] = {};
  float plane[S::kTiles][L::kColumns][4];  // of a serial warp: the slices before

  const auto load_a = [&](uint4(&to)[2 * S::kTiles], int i) {
    const int left = L::kWhole ? 8 : S::kInputs - first_k - L::k_of(i);
    const bf16* const from = weights + L::k_of(i);
#pragma unroll
    for (int r = 0; r < 2 * S::kTiles; ++r) {
      const bf16* const row = from + step_of_row[r];
      to[r] = left <= 0 ? uint4{0, 0, 0, 0} : S::kVector == 8 ? load_weight(row) : load_singly(row, left);
    }
  };
  const auto load_b = [&](uint4(&to)[S::kUnit], int i, int unit) {
    const int left = L::kWhole ? 8 : S::kInputs - first_k - L::k_of(i);
    const bf16* const from = own_x + L::k_of(i);
#pragma unroll
    for (int c = 0; c < S::kUnit; ++c) {
      const int column = unit * S::kUnit + c;
      const bf16* const row = from + 8 * column * S::kXStride;
      const bool real = left > 0 && first_token + 8 * column + g < rows;
      to[c] = !real ? uint4{0, 0, 0, 0} : S::kVector == 8 ? load16(row) : load_singly(row, left);
    }
  };

#pragma unroll
  for (int i = 0; i < S::kAhead; ++i) {
    if (i < L::kAllSteps) load_a(a[i], i);
  }
  let_successor_start();
  wait_for_predecessor();
#pragma unroll
  for (int u = 0; u < S::kUnitsAhead; ++u) {
    if (u < L::kAllSteps * L::kUnits) load_b(b[u], u / L::kUnits, u % L::kUnits);
  }

#pragma unroll 1
  for (int from = 0; from < L::kAllSteps; from += L::kSteps) {
#pragma unroll 1
    for (int round = from; round < from + L::kSteps; round += S::kAhead) {
#pragma unroll
      for (int ring = 0; ring < S::kAhead; ++ring) {
        const int i = round + ring;
        if (L::kSteps % S::kAhead && i >= L::kSteps) break;
#pragma unroll
        for (int unit = 0; unit < L::kUnits; ++unit) {
          uint4(&slot)[S::kUnit] = b[(ring * L::kUnits + unit) % S::kUnitsAhead];
          uint4 now[S::kUnit];
#pragma unroll
          for (int c = 0; c < S::kUnit; ++c) now[c] = slot[c];
#pragma unroll
          for (int tile = 0; tile < S::kTiles; ++tile) {
            const uint4 low = a[ring][2 * tile], high = a[ring][2 * tile + 1];
            float(&sums)[L::kColumns][4] = d[tile];
#pragma unroll
            for (int c = 0; c < S::kUnit; ++c) mma(sums[unit * S::kUnit + c], low.x, high.x, low.y, high.y, now[c].x, now[c].y);
#pragma unroll
            for (int c = 0; c < S::kUnit; ++c) mma(sums[unit * S::kUnit + c], low.z, high.z, low.w, high.w, now[c].z, now[c].w);
          }
          const int next = unit + S::kUnitsAhead;
          if (i + next / L::kUnits < L::kAllSteps) load_b(slot, i + next / L::kUnits, next % L::kUnits);
        }
        if (i + S::kAhead < L::kAllSteps) load_a(a[ring], i + S::kAhead);
      }
    }
    if constexpr (S::kSerial) {
#pragma unroll
      for (int e = 0; e < S::kTiles * L::kColumns * 4; ++e) {
        float& sum = plane[e / 4 / L::kColumns][e / 4 % L::kColumns][e % 4];
        float& slice = d[e / 4 / L::kColumns][e / 4 % L::kColumns][e % 4];
        sum = from == 0 ? slice : sum + slice;
        slice = 0.0f;
      }
    }
  }

  const auto& sums = [&]() -> auto& {
    if constexpr (S::kSerial) {
      return plane;
    } else {
      return d;
    }
  }();
  constexpr int kOwnPlanes = L::kBlockSlices / S::kPlane;
  const i64 plane_size = static_cast<i64>(gridDim.y) * S::kPlaneRows * S::kOutputs;
  constexpr bool kToPlanes = S::kSplit > 1 || S::kLeave;
  Y* const out = y + head * S::kYHead;
#pragma unroll
  for (int pass = 0; pass < L::kColumns; pass += S::kPass) {
    if (pass > 0) __syncthreads();
#pragma unroll
    for (int c = 0; c < S::kPass; ++c) {
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile) {
        const float(&from)[4] = sums[tile][pass + c];
        float* const to = part + (own_slice * S::kPass * 8 + 8 * c + 2 * t) * L::kPitch + row_warp * L::kWarpRows + 16 * tile + g;
        to[0] = from[0];
        to[L::kPitch] = from[1];
        to[8] = from[2];
        to[L::kPitch + 8] = from[3];
      }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < S::kPass * 8 * L::kBlockRows; e += L::kThreads) {
      const int row = e % L::kBlockRows, token = first_token + 8 * pass + e / L::kBlockRows, n = first_n + row;
      if (token >= rows || (L::kRagged && n >= S::kOutputs)) continue;
      const float* const from = part + e / L::kBlockRows * L::kPitch + row;
      float total = 0.0f;
#pragma unroll
      for (int p = 0; p < kOwnPlanes; ++p) {
        float sum = from[p * L::kPlaneParts * S::kPass * 8 * L::kPitch];
#pragma unroll
        for (int s = 1; s < L::kPlaneParts; ++s) sum += from[(p * L::kPlaneParts + s) * S::kPass * 8 * L::kPitch];
        if constexpr (kToPlanes) {
          float* const plane = planes + (cut * kOwnPlanes + p) * plane_size;
          plane[(static_cast<i64>(head) * S::kPlaneRows + token) * S::kOutputs + n] = sum;
        } else {
          total = p == 0 ? sum : total + sum;
        }
      }
      if constexpr (!kToPlanes) put(out + static_cast<i64>(token) * S::kYStride + n, total);
    }
  }

  if constexpr (S::kSplit > 1 && !S::kLeave) {
    if (!last_of<S::kSplit>(tickets + (blockIdx.z / S::kSplit * gridDim.y + head) * gridDim.x + blockIdx.x)) return;
    for (int e = threadIdx.x; e < S::kRows * L::kBlockRows; e += L::kThreads) {
      const int token = first_token + e / L::kBlockRows, n = first_n + e % L::kBlockRows;
      if (token >= rows || (L::kRagged && n >= S::kOutputs)) continue;
      // volatile: past L1, where another block's sums cannot be
      const volatile float* const from = planes + (static_cast<i64>(head) * S::kPlaneRows + token) * S::kOutputs + n;
      float total = from[0];
#pragma unroll
      for (int p = 1; p < L::kPlanes; ++p) total += from[p * plane_size];
      put(out + static_cast<i64>(token) * S::kYStride + n, total);
    }
  }
}

// x [rows, (heads,) K], w [(heads,) N, K], y [rows, (heads,) N] bfloat16 or float32.
template <typename S, typename Y>
__device__ __forceinline__ void linear(const bf16* x, const bf16* w, Y* y, int rows) {
  linear_body<S>(x, w, y, nullptr, nullptr, rows);
}

// The same where a variant cuts K over blocks: `planes` float32 [planes][heads][kPlaneRows][N].
template <typename S, typename Y>
__device__ __forceinline__ void linear(const bf16* x, const bf16* w, Y* y, float* planes, int* tickets, int rows) {
  linear_body<S>(x, w, y, planes, tickets, rows);
}

// Only the planes.
template <typename S>
__device__ __forceinline__ void linear_planes(const bf16* x, const bf16* w, float* planes, int rows) {
  linear_body<S>(x, w, static_cast<float*>(nullptr), planes, nullptr, rows);
}

}  // namespace ddt
