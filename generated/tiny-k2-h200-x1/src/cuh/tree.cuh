// Begins the steps of a round: the drafter's block, the tree of its guesses, or one plain row a slot.
#pragma once
#include "device.cuh"

namespace ddt {

enum Status { kIdle = 0, kRuns = 1, kStopped = 2, kFull = 3, kBroken = 4 };
enum Mode { kOff = 0, kChain = 1, kTree = 2 };

// The block of one slot: anchor, then mask tokens; logits are wanted of all rows but the anchor's. One warp a slot.
template <typename S>
__device__ __forceinline__ void begin_draft(const int* status, const int* length, const int* anchor, int* tokens,
                                            int* positions, int* committed, int* valid, int* out_index) {
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.x;
  const bool runs = status[slot] == kRuns;
  const int start = runs ? length[slot] : 0;
  for (int i = threadIdx.x; i < S::kBlock; i += kWarp) {
    const int row = slot * S::kBlock + i;
    tokens[row] = i == 0 ? anchor[slot] : S::kMaskToken;
    positions[row] = start + i;
    if (i > 0) out_index[slot * (S::kBlock - 1) + i - 1] = row;
  }
  if (threadIdx.x == 0) {
    committed[slot] = start;
    valid[slot] = runs ? S::kBlock : 0;
  }
}

// One row a slot: its anchor, a tree without nodes. One thread a slot.
template <typename S>
__device__ __forceinline__ void begin_plain(const int* status, const int* length, const int* anchor, int* tokens,
                                            int* positions, int* committed, int* valid, u32* masks, int* out_index,
                                            int* nodes, int* parents, int* ranks, double* scores, int slots) {
  wait_for_predecessor();
  let_successor_start();
  for (int slot = threadIdx.x; slot < slots; slot += blockDim.x) {
    const bool runs = status[slot] == kRuns;
    tokens[slot] = anchor[slot];
    positions[slot] = committed[slot] = runs ? length[slot] : 0;
    valid[slot] = runs;
    for (int word = 0; word < 4; ++word) masks[4 * slot + word] = word == 0;
    out_index[slot] = slot;
    nodes[slot] = 0;
    parents[slot] = ranks[slot] = -1;
    scores[slot] = 0.0;
  }
}

// ---- the tree ----

constexpr i64 kNever = 0x7fffffffffffffffll;  // cost of an empty place
constexpr float kLowest = -33554432.0f;        // -2^25 nats: sums of 63 such steps stay within an int64
constexpr int kTreeThreads = 128;

// Rank path of a candidate: ranks + 1 from the root down, S::kRankBits each from the top of the words, 0 behind the
// last. As numbers, paths are in lexicographic order, a path before what begins with it.
template <typename S>
struct Path {
  static constexpr int kPerWord = 64 / S::kRankBits, kWords = (S::kLevels + kPerWord - 1) / kPerWord;
  u64 word[kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < kWords; ++w) word[w] = 0;
  }
  // The next sibling, or the first child where `level` was empty.
  __device__ __forceinline__ void step(int level) {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (level / kPerWord == w) word[w] += 1ull << (64 - S::kRankBits * (level % kPerWord + 1));
  }
  __device__ __forceinline__ int rank(int level) const {
    u64 from = word[0];
#pragma unroll
    for (int w = 1; w < kWords; ++w)
      if (level / kPerWord == w) from = word[w];
    return static_cast<int>(from >> (64 - S::kRankBits * (level % kPerWord + 1)) & ((1u << S::kRankBits) - 1)) - 1;
  }
  __device__ __forceinline__ bool before(const Path& other) const {
    bool less = false, same = true;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      less = less || (same && word[w] < other.word[w]);
      same = same && word[w] == other.word[w];
    }
    return less;
  }
};

// What the search of one slot shares. Levels and ranks count from 0.
template <typename S>
struct TreeRoom {
  i64 costs[S::kLevels][S::kTop];  // -log-prob * 2^32, rounded; rises along a row
  int widths[S::kLevels];          // candidates of a level: above -inf, and no more than nodes may be taken
  int parents[S::kNodes + 1];
  int depths[S::kNodes + 1];
  double scores[S::kNodes + 1];
  double gains[S::kNodes + 1];
  Path<S> paths[S::kNodes + 1];
  u32 masks[S::kNodes + 1][4];
  int levels;                      // levels with candidates, from the top
  int broken;
  int nodes;
};

__device__ __forceinline__ i64 warp_least(i64 cost) {  // of numbers from 0 on
  const u32 high = static_cast<u32>(cost >> 32), low = static_cast<u32>(cost);
  const u32 least = __reduce_min_sync(kAll, high);
  return static_cast<i64>(least) << 32 | __reduce_min_sync(kAll, high == least ? low : kAll);
}
__device__ __forceinline__ u64 warp_least(u64 x) {
  const u32 high = static_cast<u32>(x >> 32), low = static_cast<u32>(x);
  const u32 least = __reduce_min_sync(kAll, high);
  return static_cast<u64>(least) << 32 | __reduce_min_sync(kAll, high == least ? low : kAll);
}

// Takes the best candidate `most` times: least cost, then first path. One warp; lane l holds places l, l + 32, ..: a
// node that leaves place p is followed there by its sibling, its first child takes the next new place. Returns how
// many.
template <typename S>
__device__ __forceinline__ int best_first(TreeRoom<S>& room, int most) {
  constexpr int kPlaces = (S::kNodes + kWarp) / kWarp;
  const int lane = threadIdx.x;
  i64 costs[kPlaces];
  Path<S> paths[kPlaces];
  int parents[kPlaces], depths[kPlaces];
#pragma unroll
  for (int p = 0; p < kPlaces; ++p) {
    costs[p] = kNever;
    parents[p] = depths[p] = 0;
    paths[p].clear();
  }
  if (lane == 0 && room.levels > 0) {
    costs[0] = room.costs[0][0];
    paths[0].step(0);
    depths[0] = 1;
  }
  int node = 0;
  while (node < most) {
    // The lane's best place, by static indices: a register array.
    i64 cost = costs[0];
    Path<S> path = paths[0];
    int place = 0, parent = parents[0], depth = depths[0];
#pragma unroll
    for (int p = 1; p < kPlaces; ++p) {
      const bool before = costs[p] < cost || (costs[p] == cost && paths[p].before(path));
      if (before) cost = costs[p], path = paths[p], place = p, parent = parents[p], depth = depths[p];
    }
    const i64 least = warp_least(cost);
    if (least == kNever) break;
    u32 best = __ballot_sync(kAll, cost == least);
#pragma unroll
    for (int w = 0; w < Path<S>::kWords; ++w) {  // equal scores: the first path
      if (__popc(best) == 1) break;
      const bool tied = best >> lane & 1;
      const u64 first = warp_least(tied ? path.word[w] : ~0ull);
      best = __ballot_sync(kAll, tied && path.word[w] == first);
    }
    const int winner = __ffs(best) - 1;
    parent = __shfl_sync(kAll, parent, winner);
    depth = __shfl_sync(kAll, depth, winner);
#pragma unroll
    for (int w = 0; w < Path<S>::kWords; ++w) path.word[w] = __shfl_sync(kAll, path.word[w], winner);
    const int rank = path.rank(depth - 1);
    ++node;
    if (lane == 0) {
      room.parents[node] = parent;
      room.depths[node] = depth;
      room.paths[node] = path;
    }
    const i64 mine = room.costs[depth - 1][rank];
    const bool has_sibling = rank + 1 < room.widths[depth - 1], has_child = depth < room.levels;
    const i64 sibling = has_sibling ? least - mine + room.costs[depth - 1][rank + 1] : kNever;
    const i64 child = has_child ? least + room.costs[depth][0] : kNever;
#pragma unroll
    for (int p = 0; p < kPlaces; ++p) {
      if (lane == winner && p == place) {
        costs[p] = sibling;
        paths[p].step(depth - 1);
      }
      if (has_child && p * kWarp + lane == node) {
        costs[p] = child;
        paths[p] = path;
        paths[p].step(depth);
        parents[p] = node;
        depths[p] = depth + 1;
      }
    }
  }
  return node;
}

// The top-1 spine of `most` nodes, or nothing where a level has no candidate.
template <typename S>
__device__ __forceinline__ int chain(TreeRoom<S>& room, int most) {
  if (room.levels < most) return 0;
  for (int node = 1 + threadIdx.x; node <= most; node += kWarp) {
    room.parents[node] = node - 1;
    room.depths[node] = node;
    room.paths[node].clear();
    for (int level = 0; level < node; ++level) room.paths[node].step(level);
  }
  return most;
}

// Log-prob of every node's path, summed from the root down in float64.
template <typename S>
__device__ __forceinline__ void score_nodes(TreeRoom<S>& room, const float* logprobs, int nodes) {
  for (int node = threadIdx.x; node <= nodes; node += kWarp) {
    double score = 0.0;
    const int depth = node == 0 ? 0 : room.depths[node];
    for (int level = 0; level < depth; ++level) score += logprobs[level * S::kTop + room.paths[node].rank(level)];
    room.scores[node] = score;
  }
  __syncwarp();
}

// How many nodes to keep: node m only while (1 + sum of node probabilities) / cost[m] strictly rises (CaDDTree).
template <typename S>
__device__ __forceinline__ int cost_stop(TreeRoom<S>& room, const double* cost, int nodes) {
  const int lane = threadIdx.x;
  for (int node = 1 + lane; node <= nodes; node += kWarp) room.gains[node] = exp(room.scores[node]);
  __syncwarp();
  if (lane == 0) {
    double expected = 1.0;
    room.gains[0] = expected;
    for (int node = 1; node <= nodes; ++node) room.gains[node] = expected += room.gains[node];
  }
  __syncwarp();
  int stop = nodes + 1;
  for (int node = 1 + lane; node <= nodes; node += kWarp) {
    const double rate = room.gains[node] / cost[node], before = room.gains[node - 1] / cost[node - 1];
    if (!(rate > before)) stop = min(stop, node);
  }
  return static_cast<int>(__reduce_min_sync(kAll, static_cast<u32>(stop))) - 1;
}

// The tree of one slot from the best tokens of its draft rows, and the target's step for it: root first, then the nodes
// in the order of the search, then padding. One block a slot.
//
// Nodes are bounded by budget[slot], the step's group and the slot's pages; depth by the tokens still wanted. A NaN in
// a row that counts gives the root alone, and one more in broken_drafts. Scores below kLowest nats a step are compared
// as kLowest; otherwise the order is exactly that of the integers round(-log-prob * 2^32), then of the paths.
template <typename S>
__device__ __forceinline__ void build_tree(const float* top_logprobs, const int* top_tokens, const double* round_cost,
                                           const int* status, const int* mode, const int* budget, const int* limit,
                                           const int* produced, const int* room_tokens, const int* length,
                                           const int* anchor, int* step_tokens, int* positions, int* committed,
                                           int* valid, u32* masks, int* out_index, int* nodes, int* parents, int* ranks,
                                           double* scores, int* broken_drafts, int group) {
  __shared__ TreeRoom<S> room;
  const int slot = blockIdx.x, me = threadIdx.x;
  wait_for_predecessor();
  let_successor_start();
  const bool runs = status[slot] == kRuns;
  const int start = runs ? length[slot] : 0, wanted = limit[slot] - produced[slot] - 1;
  int most = min(min(budget[slot], S::kNodes), min(group, room_tokens[slot] - start) - 1);
  int levels = min(S::kLevels, wanted);
  if (!runs || mode[slot] == kOff || levels <= 0 || most <= 0) most = levels = 0;
  const bool spine = mode[slot] == kChain;
  if (spine) most = levels = min(most, levels);
  const float* logprobs = top_logprobs + static_cast<i64>(slot) * S::kRows * S::kTop;
  const int* tokens = top_tokens + static_cast<i64>(slot) * S::kRows * S::kTop;

  if (me < S::kLevels) room.widths[me] = 0;
  if (me == 0) room.broken = 0;
  __syncthreads();
  // All rows that are wanted are searched for NaN, also those deeper than the nodes reach.
  const int checked = most == 0 ? 0 : spine ? most : min(S::kRows, wanted);
  for (int at = me; at < checked * S::kTop; at += kTreeThreads) {
    const float x = logprobs[at];
    const int level = at / S::kTop, rank = at % S::kTop;
    if (x != x) room.broken = 1;
    if (level < levels) {
      room.costs[level][rank] = __float2ll_rn(fmaxf(-fmaxf(x, kLowest) * 4294967296.0f, 0.0f));
      if (rank < most && x > __uint_as_float(0xff800000u)) atomicAdd(&room.widths[level], 1);
    }
  }
  __syncthreads();
  if (me < kWarp) {
    if (me == 0) {
      int open = 0;
      while (open < levels && room.widths[open] > 0) ++open;
      room.levels = room.broken ? 0 : open;
      room.parents[0] = -1;
      if (room.broken) ++broken_drafts[slot];
    }
    __syncwarp();
    int count = 0;
    if (room.levels > 0) count = spine ? chain(room, most) : best_first(room, most);
    __syncwarp();
    score_nodes(room, logprobs, count);
    if (!spine && round_cost[0] > 0.0) count = cost_stop(room, round_cost, count);
    for (int node = me; node <= count; node += kWarp) {
      u32 seen[4] = {1, 0, 0, 0};
      for (int at = node; at > 0; at = room.parents[at])
#pragma unroll
        for (int word = 0; word < 4; ++word) seen[word] |= at / 32 == word ? 1u << at % 32 : 0;
      for (int word = 0; word < 4; ++word) room.masks[node][word] = seen[word];
    }
    if (me == 0) room.nodes = count;
  }
  __syncthreads();

  const int count = room.nodes;
  for (int i = me; i < group; i += kTreeThreads) {
    const int row = slot * group + i, depth = i == 0 || i > count ? 0 : room.depths[i];
    const int rank = depth == 0 ? -1 : room.paths[i].rank(depth - 1);
    step_tokens[row] = depth == 0 ? anchor[slot] : tokens[(depth - 1) * S::kTop + rank];
    positions[row] = start + depth;
    out_index[row] = row;
    for (int word = 0; word < 4; ++word)
      masks[4 * row + word] = i <= count ? room.masks[i][word] : i / 32 == word ? 1u << i % 32 : 0;
    parents[row] = depth == 0 ? -1 : room.parents[i];
    ranks[row] = rank;
    scores[row] = depth == 0 ? 0.0 : room.scores[i];
  }
  if (me == 0) {
    committed[slot] = start;
    valid[slot] = runs ? count + 1 : 0;
    nodes[slot] = count;
  }
}

}  // namespace ddt
