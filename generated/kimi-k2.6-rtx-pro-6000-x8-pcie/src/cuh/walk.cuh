// Ends a round: follows the target's picks down the tree, tells the host, moves what was accepted to its place.
#pragma once
#include "tree.cuh"

namespace ddt {

// A set of token ids that is known at compile time.
template <int... kIds>
struct Tokens {
  __device__ __forceinline__ static bool has(int token) { return (false || ... || (token == kIds)); }
};

// Follows the picks from the root of a slot's tree, commits the accepted tokens and the pick behind them, and writes
// the round's record. One warp a slot; lane l looks after the nodes l, l + 32, .. and after the l-th committed token.
//
// Picks below 0 are faults: with temperature 0 anywhere in the tree, otherwise on the path. Such a round commits
// nothing. Of the committed tokens only what `limit` still wants is output, and of that only up to the first stop
// token; either ends the sequence, and then nothing moves on: length and anchor stay.
template <typename S>
__device__ __forceinline__ void walk(const int* tokens, const int* nodes, const int* parents, const int* ranks,
                                     const double* scores, const int* picks, const double* temperature,
                                     const int* limit, const int* room_tokens, const int* heed_stops, int* length,
                                     int* anchor, int* produced, int* status, int* rounds, int* accepted,
                                     int* accepted_count, int* ring, int group) {
  constexpr int kPer = (S::kNodes + kWarp) / kWarp;
  static_assert(S::kBlock <= kWarp, "one lane a committed token");
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.x, lane = threadIdx.x;
  if (status[slot] != kRuns) {
    if (lane == 0) accepted_count[slot] = 0;
    return;
  }
  // All that lane 0 changes below is read before the first exchange among the lanes.
  const int first = slot * group, count = nodes[slot], start = length[slot], root = anchor[slot];
  const int round = rounds[slot], wanted = limit[slot] - produced[slot];
  int token[kPer], parent[kPer], pick[kPer], fault = S::kNodes + 1;
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int node = p * kWarp + lane, row = first + min(node, count);
    token[p] = tokens[row], parent[p] = node <= count ? parents[row] : -1, pick[p] = picks[row];
    if (pick[p] < 0 && node <= count) fault = min(fault, node);
  }
  fault = static_cast<int>(__reduce_min_sync(kAll, static_cast<u32>(fault)));

  int node = 0, length_of_path = 0, mine = 0, next = 0;  // mine: the node at place `lane` of the path
  bool broken = false;
  while (true) {
    if (lane == length_of_path) mine = node;
    ++length_of_path;
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int picked = __shfl_sync(kAll, pick[p], node % kWarp);
      if (p == node / kWarp) next = picked;
    }
    broken = next < 0;
    int child = 0;
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const u32 found = __ballot_sync(kAll, parent[p] == node && token[p] == next);
      if (found) child = p * kWarp + __ffs(found) - 1;
    }
    if (broken || child <= node || length_of_path == S::kBlock) break;
    node = child;
  }
  if (temperature[slot] == 0.0 && fault <= S::kNodes) {
    broken = true;
    node = fault;
  }

  // Lane j < length_of_path holds the j-th committed token.
  const int below = __shfl_down_sync(kAll, mine, 1);
  const int output = lane + 1 < length_of_path ? tokens[first + below] : next;
  int keep = broken ? 0 : min(length_of_path, wanted);
  const u32 stops = __ballot_sync(kAll, lane < keep && heed_stops[slot] != 0 && S::Stops::has(output));
  if (stops) keep = __ffs(stops);
  const int now = broken                                           ? kBroken
                  : stops                                          ? kStopped
                  : keep == wanted                                 ? kFull
                  : start + length_of_path >= room_tokens[slot] ? kFull
                                                                   : kRuns;

  // The record; its number comes last, when the host can see all the rest.
  int* record = ring + (static_cast<i64>(slot) * S::kRing + round % S::kRing) * S::kRecord;
  if (lane < length_of_path) {
    record[S::kCommitted + lane] = output;
    record[S::kAccepted + lane] = mine;
    accepted[slot * S::kBlock + lane] = mine;
  }
  double* record_scores = reinterpret_cast<double*>(record + S::kScores);
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int n = p * kWarp + lane;
    if (n <= count) {
      int* run = record + S::kLists + n;
      run[0] = token[p];
      run[S::kNodes + 1] = parent[p];
      run[2 * (S::kNodes + 1)] = ranks[first + n];
      run[3 * (S::kNodes + 1)] = pick[p];
      record_scores[n] = scores[first + n];
    }
  }
  if (lane == 0) {
    record[1] = start;
    record[2] = root;
    record[3] = count;
    record[4] = length_of_path;
    record[5] = broken ? node : next;
    record[6] = keep;
    record[7] = now;
    produced[slot] += keep;
    status[slot] = now;
    rounds[slot] = round + 1;
    accepted_count[slot] = now == kRuns ? length_of_path : 0;
    if (now == kRuns) {
      length[slot] = start + length_of_path;
      anchor[slot] = next;
    }
  }
  __threadfence_system();
  __syncwarp();
  if (lane == 0) *const_cast<volatile int*>(record) = round + 1;
}

// Moves the latents of accepted rows right behind the committed tokens, in layer blockIdx.x of slot blockIdx.y. A
// thread has one column of S::Piece and reads a batch of rows before it writes the first.
template <typename S>
__device__ __forceinline__ void compact(bf16* latent, const int* pages, const int* committed, const int* accepted,
                                        const int* accepted_count) {
  using Piece = typename S::Piece;
  constexpr int kColumns = S::kWidth * static_cast<int>(sizeof(bf16)) / static_cast<int>(sizeof(Piece)), kBatch = 8;
  wait_for_predecessor();
  let_successor_start();
  const int slot = blockIdx.y, count = accepted_count[slot], start = committed[slot];
  const int* path = accepted + slot * S::kBlock;
  if (count == 0 || path[count - 1] == count - 1) return;  // all are in place
  const int* table = pages + slot * S::kPagesPerSlot;
  Piece* layer = reinterpret_cast<Piece*>(latent + static_cast<i64>(blockIdx.x) * S::kTokens * S::kWidth);
  const auto place = [&](int token) {
    return (static_cast<i64>(table[token / S::kPage]) * S::kPage + token % S::kPage) * kColumns;
  };
  for (int column = threadIdx.x; column < kColumns; column += blockDim.x) {
    // Place j lies below every row that is still to be read: path[i] >= i > j for those behind the batch.
    for (int first = 1; first < count; first += kBatch) {
      Piece held[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        if (first + j < count) held[j] = layer[place(start + path[first + j]) + column];
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        if (first + j < count) layer[place(start + first + j) + column] = held[j];
    }
  }
}

// The drafter's next context: features of the accepted rows in the order of the path, and where they stand. Block
// (row of the draft block, slot, part of the row).
template <typename S>
__device__ __forceinline__ void gather_features(const bf16* features, const int* accepted, const int* accepted_count,
                                                bf16* context_features, int* positions, const int* committed,
                                                int* valid, int group) {
  using Piece = typename S::Piece;
  constexpr int kColumns = S::kWidth * static_cast<int>(sizeof(bf16)) / static_cast<int>(sizeof(Piece));
  wait_for_predecessor();
  let_successor_start();
  const int j = blockIdx.x, slot = blockIdx.y, count = accepted_count[slot], row = slot * S::kBlock + j;
  if (threadIdx.x == 0 && blockIdx.z == 0) {
    positions[row] = committed[slot] + (j < count ? j : 0);
    if (j == 0) valid[slot] = count;
  }
  if (j >= count) return;
  const i64 from_row = static_cast<i64>(slot) * group + accepted[row];
  const Piece* from = reinterpret_cast<const Piece*>(features) + from_row * kColumns;
  Piece* to = reinterpret_cast<Piece*>(context_features) + static_cast<i64>(row) * kColumns;
#pragma unroll
  for (int p = 0; p < S::kPieces; ++p) {
    const int i = (blockIdx.z * S::kPieces + p) * blockDim.x + threadIdx.x;
    if (i < kColumns) to[i] = from[i];
  }
}

}  // namespace ddt
