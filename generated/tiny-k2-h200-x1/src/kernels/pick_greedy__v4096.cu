// pick_greedy__v4096, printed from kernels/kernel.cu.j2.
// The most probable of 4096 tokens after every row
#include "pick.cuh"

struct Peaks {
  static constexpr int kVocab = 4096;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 1;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
peaks_m128(const float* logits, const int* valid, ddt::u64* best, int group) {
  ddt::peaks<Peaks>(logits, valid, best, group);
}

struct BestToken {
  static constexpr int kVocab = 4096;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 1;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
best_token_m128(const ddt::u64* best, const int* valid, int* picks, int group, int rows) {
  ddt::best_token<BestToken>(best, valid, picks, group, rows);
}
