// Where the caches keep a token.
#pragma once
#include "device.cuh"

namespace ddt {

// The paged cache of latents, [layers][kTokens][kLatent]: token `token` of a slot lies in the page that the slot's table names.
template <typename S>
__device__ __forceinline__ bf16* latent_at(bf16* latent, const int* pages, int layer, int slot, int token) {
  const int page = pages[slot * S::kPages + token / S::kPage];
  const i64 place = static_cast<i64>(page) * S::kPage + token % S::kPage;
  return latent + (static_cast<i64>(layer) * S::kTokens + place) * S::kLatent;
}

// The drafter's context: layers one after the other, each [slots][tokens][2][heads][dim]. `kTokens` by layer: all of them, or
// those of a ring for a layer with a window, where a token lies at its position modulo the ring.
template <int... kTokens>
struct ContextLayers {
  static __device__ __forceinline__ int tokens(int layer) {
    int n = 0, i = 0;
    ((n = i++ == layer ? kTokens : n), ...);
    return n;
  }

  // Tokens of a slot in the layers before.
  static __device__ __forceinline__ i64 before(int layer) {
    i64 n = 0;
    int i = 0;
    ((n += i++ < layer ? kTokens : 0), ...);
    return n;
  }
};

// The key of head 0 of a token; its value lies kHeads * kDim behind it.
template <typename S>
__device__ __forceinline__ bf16* context_at(bf16* context, int layer, int slot, int position) {
  const int tokens = S::Layers::tokens(layer);
  const i64 token = S::Layers::before(layer) * S::kSlots + static_cast<i64>(slot) * tokens + position % tokens;
  return context + token * (2 * S::kHeads * S::kDim);
}

}  // namespace ddt
