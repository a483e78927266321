// The routed experts of a rank, y[row] = sum over k of w[row, k] * down(silu(gate x) * (up x)), and a shared expert beside them.
//
// Weights are rows of an m16n8k16 product, tokens are its columns. The order of k inside a product is free as long as both sides
// agree: lane (g, t) takes the eight neighbours k = 32 i + 8 t of weight rows g, g + 8 and of token g, and the first of two products
// uses the first four of them. How K is split and summed follows from the shape alone, so that a token's result does not depend on
// the other tokens of the step. Every warp streams its weights through a ring of its own in shared memory: asynchronous copies can
// be waited for in their order, while loads into registers that share a scoreboard can only be waited for all together.
#pragma once
#include "device.cuh"

namespace ddt {

__device__ __forceinline__ u32 word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// 16 rows x 128 inputs of INT4 weights in groups of 32 (layout int4_tiles): 16 bytes of row g a lane, 16 of row g + 8, then for every
// g the four scales of row g and those of row g + 8. Word i of a lane holds its eight inputs of group i, so that a shift by 4 j and a
// mask leave inputs 2 j and 2 j + 1 in the two halves. kRounded: weights are rounded to bfloat16 before the product, as Hugging Face
// and Marlin do; else the product is that of the integers and its float32 sum is scaled.
template <bool kRounded>
struct Int4Tile {
  static constexpr int kInputs = 128, kBytes = 1152;
  uint4 low, high, scales;

  __device__ __forceinline__ void load(const u8* tile, int lane) {
    low = load16(tile + 16 * lane);
    high = load16(tile + 512 + 16 * lane);
    scales = load16(tile + 1024 + lane / 4 * 16);
  }

  // 0x4300 is 128 in bfloat16 with steps of one: the nibble in its lowest bits makes 128 + nibble, and nibble = q + 8.
  static __device__ __forceinline__ u32 pair(u32 nibbles, int j) {
    return fma_pair(take_bits(nibbles >> 4 * j, 0x000f000fu, 0x43004300u), 0x3f803f80u, 0xc308c308u);
  }

  // Group i as operands of two products; the factors that their sums still need for row g and row g + 8.
  __device__ __forceinline__ void operands(u32 (&a)[8], float (&factor)[2], int i) const {
    const u32 own[2] = {word(low, i), word(high, i)};
    const u32 pairs[2] = {word(scales, i / 2), word(scales, 2 + i / 2)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = i % 2 ? high_float(pairs[half]) : low_float(pairs[half]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[2 * j + half] = pair(own[half], j);
        if (kRounded) a[2 * j + half] = fma_pair(a[2 * j + half], __byte_perm(pairs[half], 0, i % 2 ? 0x3232 : 0x1010), 0);
      }
    }
  }

  // d += the products of `operands` with the 32 inputs of a token.
  static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[8], const float (&factor)[2], const uint4& b) {
    if (kRounded) {
      mma(d, a[0], a[1], a[2], a[3], b.x, b.y);
      mma(d, a[4], a[5], a[6], a[7], b.z, b.w);
    } else {
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      mma(part, a[0], a[1], a[2], a[3], b.x, b.y);
      mma(part, a[4], a[5], a[6], a[7], b.z, b.w);
#pragma unroll
      for (int n = 0; n < 4; ++n) d[n] += part[n] * factor[n / 2];
    }
  }
};

// 16 rows x 64 inputs of bfloat16 weights (layout bf16_tiles): for each 32 inputs 16 bytes of row g a lane, then 16 of row g + 8.
struct Bf16Tile {
  static constexpr int kInputs = 64, kBytes = 2048;
  uint4 low[2], high[2];

  __device__ __forceinline__ void load(const u8* tile, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = load16(tile + 1024 * i + 16 * lane);
      high[i] = load16(tile + 1024 * i + 512 + 16 * lane);
    }
  }

  __device__ __forceinline__ void operands(u32 (&a)[8], float (&)[2], int i) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[2 * j] = word(low[i], j);
      a[2 * j + 1] = word(high[i], j);
    }
  }

  static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[8], const float (&)[2], const uint4& b) {
    mma(d, a[0], a[1], a[2], a[3], b.x, b.y);
    mma(d, a[4], a[5], a[6], a[7], b.z, b.w);
  }
};

// The tokens of up to 8 * kCols columns: for every 8 of them where this lane's (column g) lies, in elements; -1 is none.
template <int kCols>
struct Tokens {
  int at[kCols];
  int width;  // columns in use
};

// One warp's share of a row of items. An item is kTiles row tiles of kInputs inputs; of their chunks (tiles of Tile::kInputs inputs)
// the warp takes number `first` and every kStride-th from there, one chunk of all row tiles a step. The ring has room for kDepth
// steps: one is in use while the others are on their way, those of later items included.
template <typename Tile, int kInputs, int kStride, int kTiles, int kCols, int kRing>
struct Stream {
  static constexpr int kChunks = (kInputs + Tile::kInputs - 1) / Tile::kInputs;
  static constexpr int kSteps = (kChunks + kStride - 1) / kStride;
  static constexpr int kTileBytes = kChunks * Tile::kBytes;
  static constexpr int kStepBytes = kTiles * Tile::kBytes;
  static constexpr int kDepth = kRing / kStepBytes;
  static constexpr int kGroups = Tile::kInputs / 32;
  static_assert(kDepth >= 2, "a ring holds the step in use and one on its way");

  u8* ring;
  const bf16* x;
  int first, begin, end, stride;  // items begin, begin + stride, ... below end
  int lane = threadIdx.x % kWarp;
  int item = begin, step = 0, fill = 0;  // what is fetched next, and to which place of the ring
  const u8* from = nullptr;

  static __device__ __forceinline__ bool real(int chunk) { return kSteps * kStride == kChunks || chunk < kChunks; }

  // Fetches one more step. `tiles(item)`: where the weights of an item begin.
  template <typename Tiles>
  __device__ __forceinline__ void fetch(const Tiles& tiles) {
    const int chunk = first + step * kStride;
    if (item < end && real(chunk)) {
      if (step == 0) from = tiles(item);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int done = 0; done < Tile::kBytes; done += 16 * kWarp) {
          const int byte = done + 16 * lane;
          if (done + 16 * kWarp > Tile::kBytes && byte >= Tile::kBytes) continue;
          copy_async16(ring + fill * kStepBytes + tile * Tile::kBytes + byte,
                       from + tile * kTileBytes + chunk * Tile::kBytes + byte);
        }
      }
    }
    copy_commit();
    fill = fill + 1 == kDepth ? 0 : fill + 1;
    if (++step == kSteps) step = 0, item += stride;
  }

  // Fetches the first steps.
  template <typename Tiles>
  __device__ __forceinline__ void start(const Tiles& tiles) {
#pragma unroll
    for (int i = 0; i < kDepth - 1; ++i) fetch(tiles);
  }

  // Eight inputs of this lane's token in group i of a chunk.
  __device__ __forceinline__ uint4 input(int at, int chunk, int i) const {
    const int k = chunk * Tile::kInputs + 32 * i + lane % 4 * 8;
    const bool there = at >= 0 && (kInputs % Tile::kInputs == 0 || k < kInputs);
    return there ? load16(x + at + k) : make_uint4(0, 0, 0, 0);
  }

  // Walks over all items, after `start`. `of(item)`: its tokens; `store(item, tokens, sums)` takes what the warp has summed.
  template <typename Tiles, typename Of, typename Store>
  __device__ __forceinline__ void run(const Tiles& tiles, const Of& of, const Store& store) {
    if (begin >= end) return;
    Tokens<kCols> tokens = of(begin);
    uint4 ahead[kGroups];  // inputs of the first eight columns, a step ahead; those of further columns, which are rare, when used
#pragma unroll
    for (int i = 0; i < kGroups; ++i) ahead[i] = input(real(first) ? tokens.at[0] : -1, first, i);
    int use = 0;
    for (int now = begin; now < end; now += stride) {
      const Tokens<kCols> next = now + stride < end ? of(now + stride) : Tokens<kCols>{{-1}, 0};
      float sums[kTiles][kCols][4] = {};
#pragma unroll 1
      for (int s = 0; s < kSteps; ++s) {
        copy_wait<kDepth - 2>();
        __syncwarp();  // all lanes have their part of this step, and none still reads the one before
        fetch(tiles);
        uint4 b[kGroups];
        const int chunk = first + s * kStride, later = s + 1 < kSteps ? chunk + kStride : first;
        const int at = !real(later) ? -1 : s + 1 < kSteps ? tokens.at[0] : next.at[0];
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          b[i] = ahead[i];
          ahead[i] = input(at, later, i);
        }
        if (real(chunk)) multiply(sums, ring + use * kStepBytes, b, tokens, chunk);
        use = use + 1 == kDepth ? 0 : use + 1;
      }
      store(now, tokens, sums);
      tokens = next;
    }
  }

  __device__ __forceinline__ void multiply(float (&sums)[kTiles][kCols][4], const u8* weights, const uint4 (&b)[kGroups],
                                           const Tokens<kCols>& tokens, int chunk) const {
    uint4 more[kGroups][kCols];
#pragma unroll
    for (int col = 1; col < kCols; ++col) {
      if (8 * col >= tokens.width) break;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) more[i][col] = input(tokens.at[col], chunk, i);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      Tile slot;
      slot.load(weights + tile * Tile::kBytes, lane);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        u32 a[8];
        float factor[2];
        slot.operands(a, factor, i);
        Tile::multiply(sums[tile][0], a, factor, b[i]);
#pragma unroll
        for (int col = 1; col < kCols; ++col) {
          if (8 * col < tokens.width) Tile::multiply(sums[tile][col], a, factor, more[i][col]);
        }
      }
    }
  }
};

// The work of a step, sorted by expert: a job is one expert with up to kWidth of the (row, k) pairs that chose it. Every block makes
// the list for itself, the same in all of them: the pairs of an expert stand in their own order.
template <int kPairs, int kExperts, int kWidth>
struct Jobs {
  static constexpr int kMost = (kPairs < kExperts ? kPairs : kExperts) + kPairs / kWidth;

  unsigned short local[kPairs];  // expert of a pair, kExperts: not held by this rank
  unsigned short pair[kPairs];   // pairs, those of an expert together
  unsigned short expert[kMost], begin[kMost], width[kMost];
  int count[kExperts];
  int totals[kWarp];

  // Returns the number of jobs. ids [pairs]; local expert e has id first + e, and ids of others are passed over.
  template <int kThreads, typename Id>
  __device__ __forceinline__ int build(const Id* ids, int first, int pairs) {
    constexpr int kShare = (kExperts + kThreads - 1) / kThreads;
    const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
    for (int e = thread; e < kExperts; e += kThreads) count[e] = 0;
    __syncthreads();
    for (int p = thread; p < pairs; p += kThreads) {
      // volatile: past L1, since the launch that wrote them may have ended while this one was running
      const i64 e = static_cast<i64>(*static_cast<const volatile Id*>(ids + p)) - first;
      const bool held = e >= 0 && e < kExperts;
      local[p] = static_cast<unsigned short>(held ? e : kExperts);
      if (held) atomicAdd(&count[e], 1);
    }
    __syncthreads();
    int own = 0;  // jobs in the upper half, pairs in the lower
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int e = thread * kShare + i;
      if (e < kExperts) own += (count[e] + kWidth - 1) / kWidth << 16 | count[e];
    }
    int sum = own;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAll, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == kWarp - 1) totals[warp] = sum;
    __syncthreads();
    int before = sum - own, all = 0;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w) {
      before += w < warp ? totals[w] : 0;
      all += totals[w];
    }
    int job = before >> 16, at = before & 0xffff;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int e = thread * kShare + i;
      if (e >= kExperts) break;
      const int members = count[e];
      for (int done = 0; done < members; done += kWidth, ++job) {
        expert[job] = static_cast<unsigned short>(e);
        begin[job] = static_cast<unsigned short>(at + done);
        width[job] = static_cast<unsigned short>(members - done < kWidth ? members - done : kWidth);
      }
      count[e] = at;
      at += members;
    }
    __syncthreads();
    if (warp == 0) {  // in their order: blocks must agree on which job a pair is in
      for (int done = 0; done < pairs; done += kWarp) {
        const int p = done + lane, e = p < pairs ? local[p] : kExperts;
        const u32 alike = __match_any_sync(kAll, e);
        const int rank = __popc(alike & ((1u << lane) - 1)), place = e < kExperts ? count[e] + rank : 0;
        __syncwarp();
        if (e < kExperts) {
          pair[place] = static_cast<unsigned short>(p);
          if (rank == 0) count[e] = place + __popc(alike);
        }
        __syncwarp();
      }
    }
    __syncthreads();
    return all >> 16;
  }
};

// Adds the sums of the warps in their order and stores silu(gate) * up: a tile's rows 0..7 are gates, 8..15 the ups that belong to
// them. `to(column)`: where the first tile's acts of a column go. `room`: a slot for every warp, tile and 8 columns.
template <int kWarps, int kTiles, int kCols, typename To>
__device__ __forceinline__ void store_acts(const float (&sums)[kTiles][kCols][4], float4* room, int width, To to) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  __syncthreads();  // the room may still be read for the item before
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int col = 0; col < kCols; ++col) {
      if (8 * col >= width) break;
      const float(&d)[4] = sums[tile][col];
      room[((col * kTiles + tile) * kWarps + warp) * kWarp + lane] = make_float4(d[0], d[1], d[2], d[3]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < (width + 7) / 8 * kTiles * kWarp; i += kWarps * kWarp) {
    const int tile = i / kWarp % kTiles, column = i / (kWarp * kTiles) * 8 + i % 4 * 2, g = i % kWarp / 4;
    const float4* const from = room + i / kWarp * kWarps * kWarp + i % kWarp;
    float4 total = from[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      const float4 more = from[w * kWarp];
      total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
    }
    if (column < width) to(column)[8 * tile + g] = to_bf16(silu(total.x) * total.z);
    if (column + 1 < width) to(column + 1)[8 * tile + g] = to_bf16(silu(total.y) * total.w);
  }
}

// Stage 1: acts[pair] = silu(gate x) * (up x) for the pairs of held experts, shared_acts[row] the same of the shared expert. Blocks
// walk over items of kTiles row tiles, first those of the shared expert, which wait for no routing; warps share the inputs.
template <typename S, typename Id>
__device__ __forceinline__ void experts_up(const bf16* x, const Id* ids, const u8* gate_up, const u8* shared_gate_up, bf16* acts,
                                           bf16* shared_acts, int first, int rows) {
  constexpr int kWidth = 8 * S::kCols;
  struct Room {
    uint4 rings[S::kWarps][S::kRing / 16];
    float4 sums[S::kWarps * S::kTiles * S::kCols * kWarp];
    Jobs<S::kRows * S::kTopK, S::kExperts, kWidth> jobs;
  };
  static_assert(sizeof(Room) <= S::kShared, "the launch gives a block too little shared memory");
  extern __shared__ uint4 shared_bytes[];
  Room& room = *reinterpret_cast<Room*>(shared_bytes);
  auto& jobs = room.jobs;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4;
  u8* const ring = reinterpret_cast<u8*>(room.rings[warp]);
  int begin = blockIdx.x;

  if constexpr (S::kSharedInter > 0) {
    using Beside = Stream<Bf16Tile, S::kHidden, S::kWarps, 1, S::kCols, S::kRing>;
    constexpr int kBlocks = S::kSharedInter / 8;
    const int items = kBlocks * ((rows + kWidth - 1) / kWidth);
    const auto tiles = [&](int item) { return shared_gate_up + static_cast<i64>(item % kBlocks) * Beside::kTileBytes; };
    Beside stream{ring, x, warp, begin, items, static_cast<int>(gridDim.x)};
    stream.start(tiles);
    wait_for_predecessor();
    let_successor_start();
    stream.run(
        tiles,
        [&](int item) {
          const int row = item / kBlocks * kWidth;
          Tokens<S::kCols> tokens;
          tokens.width = rows - row < kWidth ? rows - row : kWidth;
#pragma unroll
          for (int col = 0; col < S::kCols; ++col) {
            tokens.at[col] = 8 * col + g < tokens.width ? (row + 8 * col + g) * S::kXStride : -1;
          }
          return tokens;
        },
        [&](int item, const Tokens<S::kCols>& tokens, const float(&sums)[1][S::kCols][4]) {
          store_acts<S::kWarps>(sums, room.sums, tokens.width, [&](int column) {
            return shared_acts + (item / kBlocks * kWidth + column) * S::kSharedInter + item % kBlocks * 8;
          });
        });
    while (begin < items) begin += gridDim.x;
    begin -= items;
  } else {
    wait_for_predecessor();
    let_successor_start();
  }

  using Own = Stream<typename S::Tile, S::kHidden, S::kWarps, S::kTiles, S::kCols, S::kRing>;
  constexpr int kBlocks = S::kInter / (8 * S::kTiles);
  const int pairs = rows * S::kTopK;
  if (begin >= pairs * kBlocks) return;
  const int items = jobs.template build<S::kWarps * kWarp>(ids, first, pairs) * kBlocks;
  const auto tiles = [&](int item) {
    const int tile = jobs.expert[item / kBlocks] * (S::kInter / 8) + item % kBlocks * S::kTiles;
    return gate_up + static_cast<i64>(tile) * Own::kTileBytes;
  };
  Own stream{ring, x, warp, begin, items, static_cast<int>(gridDim.x)};
  stream.start(tiles);
  stream.run(
      tiles,
      [&](int item) {
        const int job = item / kBlocks;
        Tokens<S::kCols> tokens;
        tokens.width = jobs.width[job];
#pragma unroll
        for (int col = 0; col < S::kCols; ++col) {
          const int column = 8 * col + g;
          tokens.at[col] = column < tokens.width ? jobs.pair[jobs.begin[job] + column] / S::kTopK * S::kXStride : -1;
        }
        return tokens;
      },
      [&](int item, const Tokens<S::kCols>& tokens, const float(&sums)[S::kTiles][S::kCols][4]) {
        const int first_pair = jobs.begin[item / kBlocks];
        store_acts<S::kWarps>(sums, room.sums, tokens.width, [&](int column) {
          return acts + jobs.pair[first_pair + column] * S::kInter + item % kBlocks * (8 * S::kTiles);
        });
      });
}

// Puts a warp's sums where the weighted sum finds them: `to(column)` is the stripe of one token.
template <int kTiles, int kCols, typename To>
__device__ __forceinline__ void store_parts(const float (&sums)[kTiles][kCols][4], int width, To to) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int col = 0; col < kCols; ++col) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 8 * col + lane % 4 * 2 + n;
      if (column >= width) continue;
      float* const part = to(column) + lane / 4;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        part[16 * tile] = sums[tile][col][n];
        part[16 * tile + 8] = sums[tile][col][2 + n];
      }
    }
  }
}

// Stage 2: a block owns a stripe of kTiles row tiles of y for all pairs. Warps take whole jobs, kSharedWarps more share the shared
// expert; what they get meets in shared memory and is added in the order of k, the shared expert last.
// ids and w were complete before any block of stage 1 let this launch start, so they are read before the wait.
template <typename S, typename Id>
__device__ __forceinline__ void experts_down(const bf16* acts, const bf16* shared_acts, const Id* ids, const float* w, const u8* down,
                                             const u8* shared_down, bf16* y, int first, int rows) {
  constexpr int kWidth = 8 * S::kCols, kStripe = 16 * S::kTiles, kPairs = S::kRows * S::kTopK;
  constexpr int kRowTiles = (S::kHidden + 15) / 16, kThreads = (S::kWarps + S::kSharedWarps) * kWarp;
  struct Room {
    uint4 rings[S::kWarps][S::kRing / 16];
    uint4 shared_rings[S::kSharedWarps * S::kSharedRing / 16 + 1];
    float parts[kPairs][kStripe];
    float shared_parts[S::kSharedWarps * S::kRows + 1][kStripe];
    float share[kPairs];
    Jobs<kPairs, S::kExperts, kWidth> jobs;
  };
  static_assert(sizeof(Room) <= S::kShared, "the launch gives a block too little shared memory");
  extern __shared__ uint4 shared_bytes[];
  Room& room = *reinterpret_cast<Room*>(shared_bytes);
  auto& jobs = room.jobs;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, pairs = rows * S::kTopK;

  const int count = jobs.template build<kThreads>(ids, first, pairs);
  for (int p = threadIdx.x; p < pairs; p += kThreads) room.share[p] = *static_cast<const volatile float*>(w + p);

  if (warp < S::kWarps) {
    using Own = Stream<typename S::Tile, S::kInter, 1, S::kTiles, S::kCols, S::kRing>;
    const auto tiles = [&](int job) {
      const i64 tile = static_cast<i64>(jobs.expert[job]) * kRowTiles + blockIdx.x * S::kTiles;
      return down + tile * Own::kTileBytes;
    };
    Own stream{reinterpret_cast<u8*>(room.rings[warp]), acts, 0, warp, count, S::kWarps};
    stream.start(tiles);
    wait_for_predecessor();
    let_successor_start();
    stream.run(
        tiles,
        [&](int job) {
          Tokens<S::kCols> tokens;
          tokens.width = jobs.width[job];
#pragma unroll
          for (int col = 0; col < S::kCols; ++col) {
            const int column = 8 * col + g;
            tokens.at[col] = column < tokens.width ? jobs.pair[jobs.begin[job] + column] * S::kInter : -1;
          }
          return tokens;
        },
        [&](int job, const Tokens<S::kCols>& tokens, const float(&sums)[S::kTiles][S::kCols][4]) {
          store_parts(sums, tokens.width, [&](int column) { return room.parts[jobs.pair[jobs.begin[job] + column]]; });
        });
  } else if constexpr (S::kSharedInter > 0) {
    using Beside = Stream<Bf16Tile, S::kSharedInter, S::kSharedWarps, S::kTiles, S::kCols, S::kSharedRing>;
    const int part = warp - S::kWarps;
    const auto tiles = [&](int) { return shared_down + static_cast<i64>(blockIdx.x) * S::kTiles * Beside::kTileBytes; };
    u8* const ring = reinterpret_cast<u8*>(room.shared_rings) + part * S::kSharedRing;
    Beside stream{ring, shared_acts, part, 0, (rows + kWidth - 1) / kWidth, 1};
    stream.start(tiles);
    wait_for_predecessor();
    let_successor_start();
    stream.run(
        tiles,
        [&](int item) {
          const int row = item * kWidth;
          Tokens<S::kCols> tokens;
          tokens.width = rows - row < kWidth ? rows - row : kWidth;
#pragma unroll
          for (int col = 0; col < S::kCols; ++col) {
            tokens.at[col] = 8 * col + g < tokens.width ? (row + 8 * col + g) * S::kSharedInter : -1;
          }
          return tokens;
        },
        [&](int item, const Tokens<S::kCols>& tokens, const float(&sums)[S::kTiles][S::kCols][4]) {
          store_parts(sums, tokens.width, [&](int column) {
            return room.shared_parts[part * S::kRows + item * kWidth + column];
          });
        });
  }
  __syncthreads();

  for (int i = threadIdx.x; i < rows * kStripe / 2; i += kThreads) {
    const int row = i / (kStripe / 2), n = i % (kStripe / 2) * 2;
    if (S::kHidden % kStripe != 0 && blockIdx.x * kStripe + n >= S::kHidden) continue;
    float low = 0.0f, high = 0.0f;
    for (int p = row * S::kTopK; p < (row + 1) * S::kTopK; ++p) {
      if (jobs.local[p] == S::kExperts) continue;
      const float2 part = *reinterpret_cast<const float2*>(room.parts[p] + n);
      low += room.share[p] * part.x, high += room.share[p] * part.y;
    }
#pragma unroll
    for (int s = 0; s < S::kSharedWarps; ++s) {
      const float2 part = *reinterpret_cast<const float2*>(room.shared_parts[s * S::kRows + row] + n);
      low += part.x, high += part.y;
    }
    *reinterpret_cast<u32*>(y + static_cast<i64>(row) * S::kYStride + blockIdx.x * kStripe + n) = pack(low, high);
  }
}

// The same without a shared expert.
template <typename S, typename Id>
__device__ __forceinline__ void experts_up(const bf16* x, const Id* ids, const u8* gate_up, bf16* acts, int first, int rows) {
  experts_up<S>(x, ids, gate_up, nullptr, acts, nullptr, first, rows);
}

template <typename S, typename Id>
__device__ __forceinline__ void experts_down(const bf16* acts, const Id* ids, const float* w, const u8* down, bf16* y, int first,
                                             int rows) {
  experts_down<S>(acts, nullptr, ids, w, down, nullptr, y, first, rows);
}

}  // namespace ddt
