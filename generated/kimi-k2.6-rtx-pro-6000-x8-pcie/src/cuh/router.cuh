// The choice of experts: scores of every row, then the best of them by one warp a row.
#pragma once
#include "device.cuh"

namespace ddt {

// Order of unsigned integers = order of floats, 0 below all; NaN stands above all, so that a broken row still gets distinct experts.
__device__ __forceinline__ u32 ordered(float x) {
  const u32 bits = __float_as_uint(x);
  if (x != x) return kAll;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Of the lanes' candidates the largest key, among equal keys the smallest id; the same on every lane. Ids are below 2^32 - 1.
__device__ __forceinline__ u32 best_id(u32 key, u32 id) {
  const u32 largest = warp_max(key);
  return warp_min(key == largest ? id : kAll);
}

// Logits of float32 weights: y[row, e] = sum over k of x[row, k] w[e, k], one warp an expert, eight rows at a time.
template <typename S>
__device__ __forceinline__ void router_logits(const bf16* x, const float* w, float* y, int rows) {
  const int lane = threadIdx.x % kWarp, expert = blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  let_successor_start();
  wait_for_predecessor();
  if (expert >= S::kExperts) return;
  for (int first = 0; first < rows; first += 8) {
    float sums[8] = {};
    for (int k = lane; k < S::kInputs; k += kWarp) {
      const float weight = w[static_cast<i64>(expert) * S::kInputs + k];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (first + i < rows) sums[i] += weight * to_float(x[static_cast<i64>(first + i) * S::kXStride + k]);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float sum = warp_sum(sums[i]);
      if (lane == 0 && first + i < rows) y[static_cast<i64>(first + i) * S::kExperts + expert] = sum;
    }
  }
}

// The scores of a row as its lanes hold them: lane l has experts l, l + 32, ...
template <typename S>
struct Scores {
  static_assert(S::kTopK <= kWarp && S::kGroups <= kWarp, "a lane holds a choice, and one a group");
  static constexpr int kEach = (S::kExperts + kWarp - 1) / kWarp;
  float score[kEach];   // sigmoid or softmax of the logits
  float choice[kEach];  // what they are chosen by

  static __device__ __forceinline__ int expert(int i) { return i * kWarp + threadIdx.x; }
  static __device__ __forceinline__ bool inside(int i) { return S::kExperts % kWarp == 0 || expert(i) < S::kExperts; }

  // From logits cut into planes, which are added in order.
  __device__ __forceinline__ void load(const float* logits, int row) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float total = -__int_as_float(0x7f800000);
      if (inside(i)) {
        const float* const from = logits + static_cast<i64>(row) * S::kExperts + expert(i);
        total = from[0];
#pragma unroll
        for (int p = 1; p < S::kPlanes; ++p) total += from[static_cast<i64>(p) * S::kPlaneRows * S::kExperts];
      }
      score[i] = total;
    }
    if constexpr (S::kSigmoid) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) score[i] = 1.0f / (1.0f + expf(-score[i]));
    } else {
      float most = score[0], sum = 0.0f;
#pragma unroll
      for (int i = 1; i < kEach; ++i) most = fmaxf(most, score[i]);
      most = warp_most(most);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        score[i] = inside(i) ? expf(score[i] - most) : 0.0f;
        sum += score[i];
      }
      sum = warp_sum(sum);
#pragma unroll
      for (int i = 0; i < kEach; ++i) score[i] /= sum;
    }
  }

  static __device__ __forceinline__ float warp_most(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
    return x;
  }

  // Which groups of neighbouring experts may be chosen from, a bit each: those whose two largest choices sum to most.
  __device__ __forceinline__ u32 groups(float* room) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (inside(i)) room[expert(i)] = choice[i];
    }
    __syncwarp();
    constexpr int kMembers = S::kExperts / S::kGroups;
    float first = -__int_as_float(0x7f800000), second = first;
    if (threadIdx.x < S::kGroups) {
      for (int i = 0; i < kMembers; ++i) {
        const float x = room[threadIdx.x * kMembers + i];
        second = fmaxf(second, fminf(first, x));
        first = fmaxf(first, x);
      }
    }
    u32 key = threadIdx.x < S::kGroups ? ordered(kMembers > 1 ? first + second : first) : 0, kept = 0;
    for (int i = 0; i < S::kTopGroups; ++i) {
      const u32 id = best_id(key, threadIdx.x);
      kept |= 1u << id;
      if (threadIdx.x == id) key = 0;
    }
    return kept;
  }
};

// ids [rows, kTopK], w [rows, kTopK] from logits [kPlanes][kPlaneRows][kExperts]: the kTopK best by score + bias, equal ones by
// smaller id, weighted by their scores. Block = warp = row.
template <typename S>
__device__ __forceinline__ void choose_experts(const float* logits, const float* bias, i64* ids, float* w) {
  __shared__ float room[S::kGroups > 1 ? S::kExperts : 1];
  using Row = Scores<S>;
  float biases[Row::kEach];
#pragma unroll
  for (int i = 0; i < Row::kEach; ++i) biases[i] = bias != nullptr && Row::inside(i) ? bias[Row::expert(i)] : 0.0f;
  let_successor_start();
  wait_for_predecessor();
  const int row = blockIdx.x, lane = threadIdx.x;
  Row of;
  of.load(logits, row);
#pragma unroll
  for (int i = 0; i < Row::kEach; ++i) of.choice[i] = of.score[i] + biases[i];
  u32 kept = kAll;
  if constexpr (S::kGroups > 1) kept = of.groups(room);

  // A key of 0 is below that of every number.
  u32 keys[Row::kEach];
#pragma unroll
  for (int i = 0; i < Row::kEach; ++i) {
    const int group = Row::expert(i) / (S::kExperts / S::kGroups);
    const bool open = Row::inside(i) && (S::kGroups == 1 || kept >> group % kWarp & 1);
    keys[i] = open ? ordered(of.choice[i]) : 0;
  }
  u32 own_id = 0;
  float own_weight = 0.0f, sum = 0.0f;
  for (int k = 0; k < S::kTopK; ++k) {
    u32 key = keys[0], id = Row::expert(0);
#pragma unroll
    for (int i = 1; i < Row::kEach; ++i) {
      if (keys[i] > key) {
        key = keys[i];
        id = Row::expert(i);
      }
    }
    id = best_id(key, id);
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < Row::kEach; ++i) {
      if (static_cast<u32>(Row::expert(i)) == id) {
        score = of.score[i];
        keys[i] = 0;
      }
    }
    score = __shfl_sync(kAll, score, id % kWarp);
    sum += score;
    if (lane == k % kWarp) {
      own_id = id;
      own_weight = score;
    }
  }
  if (lane >= S::kTopK) return;
  const float factor = S::kNormalize ? S::kScale / (sum + 1e-20f) : S::kScale;
  ids[static_cast<i64>(row) * S::kTopK + lane] = own_id;
  w[static_cast<i64>(row) * S::kTopK + lane] = own_weight * factor;
}

// Without a bias.
template <typename S>
__device__ __forceinline__ void choose_experts(const float* logits, i64* ids, float* w) {
  choose_experts<S>(logits, nullptr, ids, w);
}

}  // namespace ddt
