// templates/cuh/device.cuh for the emulator: the same names with the same meaning, without PTX.
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

inline float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x) << 16); }
inline float low_float(u32 pair) { return __uint_as_float(pair << 16); }
inline float high_float(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Round to nearest even; NaN becomes the one canonical NaN, as the hardware does it.
inline bf16 to_bf16(float x) {
  const u32 y = __float_as_uint(x);
  if ((y & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<bf16>((y + 0x7fffu + (y >> 16 & 1)) >> 16);
}
inline u32 pack(float low, float high) { return to_bf16(low) | static_cast<u32>(to_bf16(high)) << 16; }

// The product of two bfloat16 is exact in float32, the sum with a third in float64 (or far below its half step).
inline u32 fma_pair(u32 a, u32 b, u32 c) {
  const auto one = [](float x, float y, float z) {
    const double exact = static_cast<double>(x) * y + z;
    float near = static_cast<float>(exact);
    // Round to odd, so that the second rounding sees on which side of a tie the sum lies.
    if (near != exact && !(__float_as_uint(near) & 1)) {
      const bool up = (near < exact) == (near >= 0);
      near = __uint_as_float(__float_as_uint(near) + (up ? 1 : -1));
    }
    return near;
  };
  return pack(one(low_float(a), low_float(b), low_float(c)), one(high_float(a), high_float(b), high_float(c)));
}

inline u32 take_bits(u32 x, u32 mask, u32 set) { return (x & mask) | set; }

inline float silu(float x) { return x / (1.0f + __expf(-x)); }

// ---- memory ----

inline void need_aligned16(const void* p, const char* why) {
  if (reinterpret_cast<u64>(p) % 16) emulated::emulated_fail(why);
}

inline uint4 load_weight(const void* p) {
  need_aligned16(p, "load_weight: the address is no multiple of 16");
  return *static_cast<const uint4*>(p);
}
inline uint4 load16(const void* p) {
  need_aligned16(p, "load16: the address is no multiple of 16");
  return *static_cast<const uint4*>(p);
}

// Shared addresses are host addresses here; only their low bits are looked at by bodies.
inline u32 shared_address(const void* p) { return static_cast<u32>(reinterpret_cast<u64>(p)); }

// The bytes arrive when the copy is issued or only at the wait that needs them, as the launch asks (see emulator.py).
inline void copy_async16(void* to, const void* from, bool valid = true) {
  need_aligned16(to, "copy_async16: the target is no multiple of 16");
  if (valid) need_aligned16(from, "copy_async16: the source is no multiple of 16");
  if (!emulated::emulated_is_shared(to)) emulated::emulated_fail("copy_async16: the target is not shared memory");
  emulated::emulated_copy(to, from, valid);
}
inline void copy_commit() { emulated::emulated_commit(); }
template <int kPending>
inline void copy_wait() { emulated::emulated_wait(kPending); }

// ---- matrix products of a warp: fragments as device.cuh says ----

inline void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  emulated::Lane* me = emulated::emulated_lane();
  const u32 in[6] = {a0, a1, a2, a3, b0, b1};
  for (int i = 0; i < 6; ++i) me->in[i] = in[i];
  for (int i = 0; i < 4; ++i) me->in[6 + i] = __float_as_uint(d[i]);
  emulated::emulated_meet(kAll, emulated::emulated_mma);
  for (int i = 0; i < 4; ++i) d[i] = __uint_as_float(me->out[i]);
}

template <bool kTransposed>
inline void tiles_finish(emulated::Lane* lanes, u32 mask) {
  if (mask != kAll) emulated::emulated_fail("load_tiles: not the whole warp");
  const bf16* rows[32];
  for (int lane = 0; lane < 32; ++lane) __builtin_memcpy(&rows[lane], lanes[lane].in, sizeof rows[lane]);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int tile = 0; tile < 4; ++tile) {
      const bf16* const* row = rows + 8 * tile;
      const u32 low = kTransposed ? row[2 * t][g] : row[g][2 * t];
      const u32 high = kTransposed ? row[2 * t + 1][g] : row[g][2 * t + 1];
      lanes[lane].out[tile] = low | high << 16;
    }
  }
}

template <bool kTransposed>
inline void load_tiles_any(u32 (&r)[4], const void* row) {
  need_aligned16(row, "load_tiles: the address is no multiple of 16");
  if (!emulated::emulated_is_shared(row)) emulated::emulated_fail("load_tiles: the address is not in shared memory");
  emulated::Lane* me = emulated::emulated_lane();
  __builtin_memcpy(me->in, &row, sizeof row);
  emulated::emulated_meet(kAll, tiles_finish<kTransposed>);
  for (int i = 0; i < 4; ++i) r[i] = me->out[i];
}
inline void load_tiles(u32 (&r)[4], const void* row) { load_tiles_any<false>(r, row); }
inline void load_tiles_transposed(u32 (&r)[4], const void* row) { load_tiles_any<true>(r, row); }

// ---- order of launches: one after the other here ----

inline void wait_for_predecessor() {}
inline void let_successor_start() {}

// ---- sums ----

inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

inline u32 warp_max(u32 x) {
  for (int step = 16; step > 0; step /= 2) {
    const u32 other = __shfl_xor_sync(kAll, x, step);
    x = other > x ? other : x;
  }
  return x;
}
inline u32 warp_min(u32 x) { return ~warp_max(~x); }

inline float block_sum(float x, float* room) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) total += room[warp];
  return total;
}

}  // namespace ddt
