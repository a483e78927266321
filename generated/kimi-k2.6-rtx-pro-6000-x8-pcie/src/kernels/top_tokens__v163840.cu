// top_tokens__v163840, printed from kernels/kernel.cu.j2.
// The best 8 of 163840 tokens of every draft row, with log-probs
#include "top_tokens.cuh"

struct ChunkTop {
  static constexpr int kVocab = 163840;
  static constexpr int kTop = 8;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
chunk_top_m128(const float* logits, ddt::u64* best, float2* mass) {
  ddt::chunk_top<ChunkTop>(logits, best, mass);
}

struct RowTop {
  static constexpr int kVocab = 163840;
  static constexpr int kTop = 8;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
row_top_m128(const ddt::u64* best, const float2* mass, float* top_logprobs, int* top_tokens) {
  ddt::row_top<RowTop>(best, mass, top_logprobs, top_tokens);
}
