// What kernel bodies use of the machine: number formats, loads and copies, matrix products, launch order.
// Bodies contain no inline PTX of their own, so that a test can put a host version of this file in its place.
#pragma once

namespace ddt {

using bf16 = unsigned short;  // bits of a bfloat16
using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

constexpr int kWarp = 32;
constexpr u32 kAll = 0xffffffffu;

// ---- numbers ----

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x) << 16); }
__device__ __forceinline__ float low_float(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_float(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Round to nearest even.
__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

// Two bfloat16 in one register, `low` in the low half.
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// a * b + c on both halves, one rounding.
__device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}

// (x & mask) | set in one instruction; the compiler makes two of it where both are constants.
__device__ __forceinline__ u32 take_bits(u32 x, u32 mask, u32 set) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(set));
  return y;
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// ---- memory ----

// 16 bytes of a weight: read once, kept out of L1.
__device__ __forceinline__ uint4 load_weight(const void* p) {
  uint4 y;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w)
               : "l"(p));
  return y;
}

// 16 bytes that an earlier launch wrote.
__device__ __forceinline__ uint4 load16(const void* p) { return *reinterpret_cast<const uint4*>(p); }

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Copies 16 bytes to shared memory in the background; zeros where `valid` is false (then `from` is not read).
__device__ __forceinline__ void copy_async16(void* to, const void* from, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;"); }
// Waits until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- matrix products of a warp: D[16 x 8] += A[16 x 16] B[16 x 8], bfloat16 in, float32 out ----
// Lane l, g = l / 4, t = l % 4. a0: A[g][2t, 2t+1], a1: A[g+8][2t, ..], a2: A[g][2t+8, ..], a3: A[g+8][2t+8, ..];
// b0: B[2t, 2t+1][g], b1: B[2t+8, 2t+9][g]; d0, d1: D[g][2t, 2t+1]; d2, d3: D[g+8][2t, 2t+1].
__device__ __forceinline__ void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four 8 x 8 tiles of 2-byte elements from shared memory; lane l gives the address of row l % 8 of tile l / 8.
__device__ __forceinline__ void load_tiles(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_tiles_transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

// ---- order of launches ----

// Everything before this may run while the predecessor still does: only reads of weights belong there.
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The next launch may start its weight reads.
__device__ __forceinline__ void let_successor_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- sums ----

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

// Largest and smallest of the lanes' values, the same on every lane.
__device__ __forceinline__ u32 warp_max(u32 x) {
  u32 y;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
__device__ __forceinline__ u32 warp_min(u32 x) {
  u32 y;
  asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// Sum over the block, the same on every thread; `room` holds one float a warp. Fixed order.
__device__ __forceinline__ float block_sum(float x, float* room) {
  x = warp_sum(x);
  __syncthreads();  // `room` may still be read from a sum before
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) total += room[warp];
  return total;
}

}  // namespace ddt
