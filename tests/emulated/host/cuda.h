// CUDA's language as host C++, put before every kernel source by the emulator (see ../emulator.py).
//
// Threads of a block are fibers of one OS thread (emulator.cc). Shared memory is thread_local, which inside a function
// means static, so that the library's TLS segment is a block's static and dynamic shared memory and nothing else.
// No system headers: a kernel compiles in a fraction of a second.
#pragma once

#define __device__
#define __host__
#define __forceinline__ inline
#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __constant__ static const
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__

using size_t = decltype(sizeof(0));

struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- what emulator.cc gives ----

namespace emulated {

// What a lane brings to a warp collective and what it takes away.
struct Lane {
  unsigned in[16];
  unsigned out[8];
};
using Finish = void (*)(Lane* lanes, unsigned mask);  // writes `out` of the named lanes only

extern "C" {
Lane* emulated_lane();
// Waits until every lane of `mask` has called with the same mask and finish; the last to come runs finish for all.
void emulated_meet(unsigned mask, Finish finish);
void emulated_barrier(const char* file, int line);
void emulated_copy(void* to, const void* from, bool valid);
void emulated_commit();
void emulated_wait(int pending);
bool emulated_is_shared(const void* p);
// The finish of mma.m16n8k16: in[0..3] A, in[4..5] B, in[6..9] C, out[0..3] D.
void emulated_mma(Lane* lanes, unsigned mask);
[[noreturn]] void emulated_fail(const char* why);
}

template <typename To, typename From>
inline To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

inline bool named(unsigned mask, unsigned lane) { return mask >> lane & 1; }

}  // namespace emulated

extern uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

// Dynamic shared memory: the most that a block may have on sm_90 and sm_120 (99 KB).
constexpr unsigned kDynamicShared = 99 * 1024;
namespace ddt {
alignas(128) thread_local uint4 shared_bytes[kDynamicShared / sizeof(uint4)];
}
extern "C" __global__ void* emulated_dynamic_shared() { return ddt::shared_bytes; }

// ---- numbers ----

extern "C" {
float expf(float);
float exp2f(float);
float logf(float);
float log2f(float);
float sqrtf(float);
float fabsf(float);
float fmaxf(float, float);
float fminf(float, float);
float fmaf(float, float, float);
float rintf(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float tanhf(float);
double rint(double);
long long llrint(double);
double exp(double);
double log(double);
double sqrt(double);
double fmax(double, double);
double fmin(double, double);
double floor(double);
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline long long __float2ll_rn(float x) { return llrint(x); }
inline long long __double2ll_rn(double x) { return llrint(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return emulated::bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulated::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulated::bits<float>(x); }
inline float __int_as_float(int x) { return emulated::bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulated::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated::bits<double>(x); }
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return fabsf(x) == __builtin_inff(); }

template <typename A, typename B>
inline auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <typename A, typename B>
inline auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
inline int abs(int x) { return x < 0 ? -x : x; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned long long>(a) * b >> 32; }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long all = static_cast<unsigned long long>(b) << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> 4 * i & 15;
    const unsigned byte = all >> 8 * (pick & 7) & 255;
    y |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (n & 31));
}

template <typename T>
inline T __ldg(const T* p) { return *p; }
template <typename T>
inline T __ldcg(const T* p) { return *p; }
template <typename T>
inline T __ldcs(const T* p) { return *p; }
template <typename T>
inline void __stcg(T* p, T x) { *p = x; }
template <typename T>
inline void __stcs(T* p, T x) { *p = x; }

// ---- threads ----

// A macro, so that threads which meet at different barriers are found out.
#define __syncthreads() emulated::emulated_barrier(__FILE__, __LINE__)
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { emulated::emulated_fail("__trap()"); }

namespace emulated {

inline void nothing(Lane*, unsigned) {}

// Lane l takes the value of lane in[2], which must be named too.
inline void exchange(Lane* lanes, unsigned mask) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!named(mask, lane)) continue;
    const unsigned from = lanes[lane].in[2];
    if (!named(mask, from)) emulated_fail("a shuffle reads a lane that its mask does not name");
    lanes[lane].out[0] = lanes[from].in[0];
    lanes[lane].out[1] = lanes[from].in[1];
  }
}

inline void vote(Lane* lanes, unsigned mask) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (named(mask, lane) && lanes[lane].in[0]) votes |= 1u << lane;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (named(mask, lane)) lanes[lane].out[0] = votes;
}

inline void match(Lane* lanes, unsigned mask) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!named(mask, lane)) continue;
    lanes[lane].out[0] = 0;
    for (unsigned other = 0; other < 32; ++other)
      if (named(mask, other) && lanes[lane].in[0] == lanes[other].in[0] &&
          lanes[lane].in[1] == lanes[other].in[1])
        lanes[lane].out[0] |= 1u << other;
  }
}

inline unsigned lane_number() { return threadIdx.x % 32; }

template <typename T>
inline T shuffle(unsigned mask, T x, unsigned from) {
  static_assert(sizeof(T) <= 8, "a value of a shuffle has at most 8 bytes");
  Lane* me = emulated_lane();
  me->in[0] = me->in[1] = 0;
  __builtin_memcpy(me->in, &x, sizeof x);
  me->in[2] = from;
  emulated_meet(mask, exchange);
  __builtin_memcpy(&x, me->out, sizeof x);
  return x;
}

inline unsigned votes(unsigned mask, bool yes) {
  Lane* me = emulated_lane();
  me->in[0] = yes;
  emulated_meet(mask, vote);
  return me->out[0];
}

template <typename T, typename Join>
inline T reduce(unsigned mask, T x, Join join) {
  T total{};
  bool first = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!named(mask, lane)) continue;
    const T other = shuffle(mask, x, lane);
    total = first ? other : join(total, other);
    first = false;
  }
  return total;
}

}  // namespace emulated

inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated::emulated_meet(mask, emulated::nothing); }
template <typename T>
inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  const unsigned lane = emulated::lane_number(), w = static_cast<unsigned>(width);
  return emulated::shuffle(mask, x, (lane & ~(w - 1)) | (static_cast<unsigned>(from) & (w - 1)));
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T x, int flip, int width = 32) {
  const unsigned lane = emulated::lane_number(), from = lane ^ static_cast<unsigned>(flip);
  const unsigned end = (lane & ~(static_cast<unsigned>(width) - 1)) + static_cast<unsigned>(width);
  return emulated::shuffle(mask, x, from < end ? from : lane);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
  const unsigned lane = emulated::lane_number(), place = lane & (static_cast<unsigned>(width) - 1);
  return emulated::shuffle(mask, x, place >= by ? lane - by : lane);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
  const unsigned lane = emulated::lane_number(), place = lane & (static_cast<unsigned>(width) - 1);
  return emulated::shuffle(mask, x, place + by < static_cast<unsigned>(width) ? lane + by : lane);
}
inline unsigned __ballot_sync(unsigned mask, int yes) { return emulated::votes(mask, yes != 0); }
inline int __any_sync(unsigned mask, int yes) { return emulated::votes(mask, yes != 0) != 0; }
inline int __all_sync(unsigned mask, int yes) { return emulated::votes(mask, yes != 0) == mask; }
template <typename T>
inline unsigned __match_any_sync(unsigned mask, T x) {
  static_assert(sizeof(T) <= 8, "a value of a match has at most 8 bytes");
  emulated::Lane* me = emulated::emulated_lane();
  me->in[0] = me->in[1] = 0;
  __builtin_memcpy(me->in, &x, sizeof x);
  emulated::emulated_meet(mask, emulated::match);
  return me->out[0];
}
template <typename T>
inline T __reduce_add_sync(unsigned mask, T x) { return emulated::reduce(mask, x, [](T a, T b) { return a + b; }); }
template <typename T>
inline T __reduce_max_sync(unsigned mask, T x) { return emulated::reduce(mask, x, [](T a, T b) { return a < b ? b : a; }); }
template <typename T>
inline T __reduce_min_sync(unsigned mask, T x) { return emulated::reduce(mask, x, [](T a, T b) { return b < a ? b : a; }); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned x) {
  return emulated::reduce(mask, x, [](unsigned a, unsigned b) { return a | b; });
}

inline int __syncthreads_or(int yes) {
  static int any;  // fibers of one OS thread: no race
  __syncthreads();
  any = 0;
  __syncthreads();
  any |= yes != 0;
  __syncthreads();
  return any;
}

// ---- atomics: one OS thread, so plain ----

template <typename T, typename F>
inline T emulated_atomic(T* p, F change) {
  const T old = *p;
  *p = change(old);
  return old;
}
#define EMULATED_ATOMIC(name, text)                                   \
  template <typename T, typename U>                                   \
  inline T name(T* p, U with) {                                       \
    const T x = static_cast<T>(with);                                 \
    return emulated_atomic(p, [x](T old) { return static_cast<T>(text); }); \
  }
EMULATED_ATOMIC(atomicAdd, old + x)
EMULATED_ATOMIC(atomicSub, old - x)
EMULATED_ATOMIC(atomicOr, old | x)
EMULATED_ATOMIC(atomicAnd, old & x)
EMULATED_ATOMIC(atomicXor, old ^ x)
EMULATED_ATOMIC(atomicMax, old < x ? x : old)
EMULATED_ATOMIC(atomicMin, x < old ? x : old)
EMULATED_ATOMIC(atomicExch, x)
EMULATED_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
#undef EMULATED_ATOMIC
template <typename T>
inline T atomicCAS(T* p, T expected, T x) {
  return emulated_atomic(p, [=](T old) { return old == expected ? x : old; });
}
