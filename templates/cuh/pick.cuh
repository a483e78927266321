// The target's token after every row: the largest logit, or a draw that depends on seed, request and position alone.
//
// A draw is that of the CPU runtime (sampling.py): float64 weights exp((logit - largest) / temperature), cut by top_k
// and top_p, and the cumulative weights in token order inverted at the uniform number of the position. Sums have one
// fixed order here too, but another than on the CPU, and the exponential may differ in its last bit: where the number
// falls on the border of two tokens to within about 1e-15 of the total, or the sum of the best weights reaches top_p to
// within as much, the token may differ. Logits whose weights are equal in float64 although they differ are cut by logit
// here, by token id there.
#pragma once
#include "top.cuh"

namespace ddt {

constexpr int kPickThreads = 256, kCutThreads = 512, kBatch = 4096;
constexpr u64 kNanKey = ~0ull;
enum Fault { kNan = -1, kTooLarge = -2, kNothing = -3 };  // instead of a token

// Whether row `row` of the step is one: the others are padding.
__device__ __forceinline__ bool is_real(const int* valid, int row, int group) {
  return row % group < valid[row / group];
}

// Best key of each chunk, S::kChunk logits of row blockIdx.y. NaN beats all.
template <typename S>
__device__ __forceinline__ void peaks(const typename S::Logit* logits, const int* valid, u64* best, int group) {
  using Logit = typename S::Logit;
  constexpr int kWide = kPiece<Logit>;
  __shared__ u64 room[kPickThreads / kWarp];
  wait_for_predecessor();
  let_successor_start();
  if (!is_real(valid, blockIdx.y, group)) return;
  const Logit* row = logits + static_cast<i64>(blockIdx.y) * S::kVocab;
  u64 most = 0;
#pragma unroll
  for (int p = 0; p < S::kChunk / kPickThreads / kWide; ++p) {
    const int token = blockIdx.x * S::kChunk + (p * kPickThreads + threadIdx.x) * kWide;
    float x[kWide];
    load_piece<Logit, S::kVocab>(x, row, token);
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      if (token + i < S::kVocab) most = larger(most, x[i] == x[i] ? token_key(x[i], token + i) : kNanKey);
  }
  most = warp_largest(most);
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kPickThreads / kWarp; ++warp) most = larger(most, room[warp]);
    best[static_cast<i64>(blockIdx.y) * S::kChunks + blockIdx.x] = most;
  }
}

// Best key of a row from those of its chunks. All lanes of a warp, the same on every lane.
template <typename S>
__device__ __forceinline__ u64 row_peak(const u64* best, int row) {
  u64 most = 0;
  const u64* chunks = best + static_cast<i64>(row) * S::kChunks;
  for (int c = threadIdx.x % kWarp; c < S::kChunks; c += kWarp) most = larger(most, chunks[c]);
  return warp_largest(most);
}

// The token of a best key, or why there is none.
__device__ __forceinline__ int token_or_fault(u64 key) {
  if (key == kNanKey) return kNan;
  const float logit = key_logit(key);
  return logit == infinity() ? kTooLarge : logit == -infinity() ? kNothing : key_token(key);
}

// The most probable token of every row. One warp a row.
template <typename S>
__device__ __forceinline__ void best_token(const u64* best, const int* valid, int* picks, int group, int rows) {
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= rows || !is_real(valid, row, group)) return;
  const int token = token_or_fault(row_peak<S>(best, row));
  if (threadIdx.x % kWarp == 0) picks[row] = token;
}

// ---- draws ----

// What a slot asks of its draws.
struct Law {
  double temperature, top_p;
  int top_k;  // 0: off

  __device__ __forceinline__ bool cuts() const { return top_k > 0 || top_p < 1.0; }
};
template <typename S>
__device__ __forceinline__ Law law_of(const double* temperature, const double* top_p, const int* top_k, int slot) {
  return {temperature[slot], top_p[slot], top_k[slot] < S::kVocab ? top_k[slot] : 0};
}

__device__ __forceinline__ double weight(float logit, float largest, double temperature) {
  return exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}

// Sum of x over the threads before this one, and over all in `total`. One fixed order; `room` holds a double a warp.
__device__ __forceinline__ double block_sum_before(double x, double* room, double& total) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  double sum = x;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const double below = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += below;
  }
  __syncthreads();  // `room` may still be read from a sum before
  if (lane == kWarp - 1) room[warp] = sum;
  __syncthreads();
  double before = 0.0, all = 0.0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (w == warp) before = all;
    all += room[w];
  }
  total = all;
  const double below = __shfl_up_sync(kAll, sum, 1);
  return before + (lane == 0 ? 0.0 : below);
}

// Weights of the run of tokens of this thread in chunk `chunk` of a row, 0 for tokens below the `least` key.
template <typename S, int kPer>
__device__ __forceinline__ void thread_weights(double (&w)[kPer], const typename S::Logit* row, int chunk,
                                               float largest, double temperature, u64 least) {
  using Logit = typename S::Logit;
  constexpr int kWide = kPiece<Logit>;
  const int first = chunk * S::kChunk + threadIdx.x * kPer;
#pragma unroll
  for (int p = 0; p < kPer / kWide; ++p) {
    float x[kWide];
    load_piece<Logit, S::kVocab>(x, row, first + p * kWide);
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const int token = first + p * kWide + i;
      const bool kept = token < S::kVocab && token_key(x[i], token) >= least;
      w[p * kWide + i] = kept ? weight(x[i], largest, temperature) : 0.0;
    }
  }
}

// Sum of the weights of chunk blockIdx.x of row blockIdx.y into mass[row][chunk]: of all tokens where no `least` is
// given, else of those that the cut left. Rows of slots that have no use for it are skipped.
template <typename S>
__device__ __forceinline__ void mass(const typename S::Logit* logits, const int* valid, const double* temperature,
                                     const double* top_p, const int* top_k, const u64* best, const u64* least,
                                     double* masses, int group) {
  constexpr int kPer = S::kChunk / kPickThreads;
  __shared__ double room[kPickThreads / kWarp];
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.y, slot = row / group;
  const Law law = law_of<S>(temperature, top_p, top_k, slot);
  if (law.temperature == 0.0 || !is_real(valid, row, group)) return;
  if (S::kAfterCut ? !law.cuts() : law.top_k > 0) return;
  const u64 peak = row_peak<S>(best, row);
  if (token_or_fault(peak) < 0) return;
  double w[kPer], sum = 0.0, total;
  const typename S::Logit* from = logits + static_cast<i64>(row) * S::kVocab;
  thread_weights<S>(w, from, blockIdx.x, key_logit(peak), law.temperature, S::kAfterCut ? least[row] : 0);
#pragma unroll
  for (int i = 0; i < kPer; ++i) sum += w[i];
  block_sum_before(sum, room, total);
  if (threadIdx.x == 0) masses[static_cast<i64>(row) * S::kChunks + blockIdx.x] = total;
}

// Room in shared memory for `descend`. A batch is what one pass over the row brings: the best of the threads' own best
// tokens, and whatever else is as good, while it fits.
struct CutRoom {
  u64 keys[kBatch];
  u64 sorted[kCutThreads];
  double sums[kWarp];
  int count;
  int reached;
};

// Sorts room.keys, `size` of them, largest first; `size` is a power of two from 2 on.
__device__ __forceinline__ void sort_keys(CutRoom& room, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < size / 2; pair += kCutThreads) {
        const int a = 2 * pair - (pair & (step - 1)), b = a + step;  // step is a power of two
        const u64 x = room.keys[a], y = room.keys[b];
        const bool falling = (a & run) == 0;
        if ((x < y) == falling) room.keys[a] = y, room.keys[b] = x;
      }
    }
  }
  __syncthreads();
}

// Calls `see` with the keys of all tokens of a row, each on one thread of the block.
template <typename S, typename See>
__device__ __forceinline__ void for_each_key(const typename S::Logit* row, See see) {
  using Logit = typename S::Logit;
  constexpr int kWide = kPiece<Logit>;
#pragma unroll 4
  for (int token = threadIdx.x * kWide; token < S::kVocab; token += kCutThreads * kWide) {
    float x[kWide];
    load_piece<Logit, S::kVocab>(x, row, token);
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      if (token + i < S::kVocab) see(token_key(x[i], token + i));
  }
}

// Goes down the tokens of a row, best first, until `most` of them are passed (0: no such bound) or their weights sum to
// `goal`. Returns the key of the last one and, in `sum`, what they weigh; a key that all reach where rounding keeps the
// whole row from the goal.
template <typename S>
__device__ __forceinline__ u64 descend(const typename S::Logit* row, float largest, double temperature, int most,
                                       double goal, CutRoom& room, double& sum) {
  u64 bound = kNanKey;  // tokens from here on were passed
  u64 best = 0;         // this thread's best of the others
  for_each_key<S>(row, [&](u64 key) { best = larger(best, key); });
  int passed = 0;
  sum = 0.0;
  while (true) {
    const u64 sorted = block_sort<kCutThreads>(best, room.sorted);
    __syncthreads();
    room.sorted[threadIdx.x] = sorted;
    __syncthreads();
    if (room.sorted[0] == 0) return 1;  // nothing is left
    u64 least;
    int count;
    // Most ends come early: a small batch first. A maximum alone is one token, so that some batch fits.
    for (int want = passed == 0 ? kCutThreads / 2 : kCutThreads * 7 / 8;; want /= 4) {
      least = larger(room.sorted[want > 0 ? want - 1 : 0], 1);
      if (threadIdx.x == 0) room.count = 0;
      __syncthreads();
      best = 0;
      for_each_key<S>(row, [&](u64 key) {
        if (key < least) {
          best = larger(best, key);
        } else if (key < bound) {
          const int at = atomicAdd(&room.count, 1);
          if (at < kBatch) room.keys[at] = key;
        }
      });
      __syncthreads();
      count = room.count;
      __syncthreads();
      if (count <= kBatch) break;
    }
    int size = kCutThreads;
    while (size < count) size *= 2;
    for (int i = count + threadIdx.x; i < size; i += kCutThreads) room.keys[i] = 0;
    if (threadIdx.x == 0) room.reached = count;
    sort_keys(room, size);

    const int per = size / kCutThreads, first = threadIdx.x * per;
    double mine = 0.0, total;
#pragma unroll 1
    for (int i = first; i < min(first + per, count); ++i) mine += weight(key_logit(room.keys[i]), largest, temperature);
    double before = sum + block_sum_before(mine, room.sums, total);
#pragma unroll 1
    for (int i = first; i < min(first + per, count); ++i) {
      before += weight(key_logit(room.keys[i]), largest, temperature);
      if (before >= goal || passed + i + 1 == most) {
        atomicMin(&room.reached, i);
        break;
      }
    }
    __syncthreads();
    const int reached = room.reached;
    if (reached < count) {
      // The sum up to there, by the thread that has it.
      if (first <= reached && reached < first + per) {
        room.sums[0] = before;
      }
      __syncthreads();
      sum = room.sums[0];
      const u64 key = room.keys[reached];
      __syncthreads();
      return key;
    }
    passed += count;
    sum += total;
    bound = least;
    __syncthreads();
  }
}

// The least key that top_k and top_p keep of a row, first the one, then of what is left the other: least[row]. One
// block a row; rows without cuts are skipped.
template <typename S>
__device__ __forceinline__ void cut(const typename S::Logit* logits, const int* valid, const double* temperature,
                                    const double* top_p, const int* top_k, const u64* best, const double* masses,
                                    u64* least, int group) {
  __shared__ CutRoom room;
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x, slot = row / group;
  const Law law = law_of<S>(temperature, top_p, top_k, slot);
  if (law.temperature == 0.0 || !law.cuts() || !is_real(valid, row, group)) return;
  const u64 peak = row_peak<S>(best, row);
  if (token_or_fault(peak) < 0) return;
  const typename S::Logit* from = logits + static_cast<i64>(row) * S::kVocab;
  const float largest = key_logit(peak);
  u64 key = 0;
  double sum = 0.0;
  if (law.top_k == 0)
    for (int c = 0; c < S::kChunks; ++c) sum += masses[static_cast<i64>(row) * S::kChunks + c];
#pragma unroll 1
  for (int share = law.top_k > 0 ? 0 : 1; share < (law.top_p < 1.0 ? 2 : 1); ++share) {
    const double goal = share ? law.top_p * sum : static_cast<double>(infinity());
    // The best token weighs 1.
    key = 1.0 >= goal ? peak : descend<S>(from, largest, law.temperature, law.top_k, goal, room, sum);
  }
  if (threadIdx.x == 0) least[row] = key;
}

// Philox4x32 with 10 rounds (Salmon et al., SC 2011), words 0 and 1 of the result.
__device__ __forceinline__ void philox(u32 (&c)[4], u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = static_cast<u64>(c[0]) * 0xD2511F53u, p1 = static_cast<u64>(c[2]) * 0xCD9E8D57u;
    c[0] = static_cast<u32>(p1 >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<u32>(p1);
    c[2] = static_cast<u32>(p0 >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<u32>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// The number of a position: float64 in [0, 1), 53 bits of the generator.
__device__ __forceinline__ double uniform(u64 seed, u64 request, u64 position) {
  u32 c[4] = {static_cast<u32>(position), static_cast<u32>(position >> 32), static_cast<u32>(request),
              static_cast<u32>(request >> 32)};
  philox(c, static_cast<u32>(seed), static_cast<u32>(seed >> 32));
  return ((c[0] >> 5) * 67108864.0 + (c[1] >> 6)) * 1.1102230246251565e-16;  // 2^-53
}

// The token of every row: the first whose cumulative weight exceeds the number's share of the total. One block a row.
template <typename S>
__device__ __forceinline__ void draw(const typename S::Logit* logits, const int* valid, const int* positions,
                                     const double* temperature, const double* top_p, const int* top_k, const u64* seed,
                                     const u64* request, const u64* best, const double* masses, const u64* least,
                                     int* picks, int group) {
  constexpr int kPer = S::kChunk / kPickThreads;
  __shared__ double sums[S::kChunks], room[kPickThreads / kWarp], goal, before;
  __shared__ int chunk, found, last;
  wait_for_predecessor();
  let_successor_start();
  const int row = blockIdx.x, slot = row / group, me = threadIdx.x;
  if (!is_real(valid, row, group)) return;
  const Law law = law_of<S>(temperature, top_p, top_k, slot);
  const u64 peak = row_peak<S>(best, row);
  const int token = token_or_fault(peak);
  if (law.temperature == 0.0 || token < 0) {
    if (me == 0) picks[row] = token;
    return;
  }
  for (int c = me; c < S::kChunks; c += kPickThreads) sums[c] = masses[static_cast<i64>(row) * S::kChunks + c];
  __syncthreads();
  if (me == 0) {
    double total = 0.0, sum = 0.0;
    for (int c = 0; c < S::kChunks; ++c) total += sums[c];
    // The token is drawn for the place behind the row's own.
    goal = uniform(seed[slot], request[slot], static_cast<u64>(positions[row] + 1)) * total;
    int c = 0;
    while (c + 1 < S::kChunks && sum + sums[c] <= goal) sum += sums[c++];
    chunk = c;
    before = sum;
    found = S::kChunk;
    last = 0;
  }
  __syncthreads();
  double w[kPer], mine = 0.0, total;
  const typename S::Logit* from = logits + static_cast<i64>(row) * S::kVocab;
  thread_weights<S>(w, from, chunk, key_logit(peak), law.temperature, law.cuts() ? least[row] : 0);
#pragma unroll
  for (int i = 0; i < kPer; ++i) mine += w[i];
  const double below = block_sum_before(mine, room, total);
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    sum += w[i];
    if (w[i] > 0.0) {
      atomicMax(&last, me * kPer + i);
      if (before + (below + sum) > goal) atomicMin(&found, me * kPer + i);
    }
  }
  __syncthreads();
  // Rounding may leave the goal just above the last sum.
  if (me == 0) picks[row] = chunk * S::kChunk + (found < S::kChunk ? found : last);
}

}  // namespace ddt
