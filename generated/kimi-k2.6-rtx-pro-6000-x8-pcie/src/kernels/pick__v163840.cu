// pick__v163840, printed from kernels/kernel.cu.j2.
// The token after every row, of 163840: drawn, or the most probable where the temperature is 0
#include "pick.cuh"

struct Peaks {
  static constexpr int kVocab = 163840;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
peaks_m128(const float* logits, const int* valid, ddt::u64* best, int group) {
  ddt::peaks<Peaks>(logits, valid, best, group);
}

struct Mass {
  static constexpr int kVocab = 163840;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
  static constexpr bool kAfterCut = false;
};

extern "C" __global__ void __launch_bounds__(256, 1)
mass_m128(const float* logits, const int* valid, const double* temperature, const double* top_p,
          const int* top_k, const ddt::u64* best, const ddt::u64* least, double* masses,
          int group) {
  ddt::mass<Mass>(logits, valid, temperature, top_p, top_k, best, least, masses, group);
}

struct Cut {
  static constexpr int kVocab = 163840;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(512, 1)
cut_m128(const float* logits, const int* valid, const double* temperature, const double* top_p,
         const int* top_k, const ddt::u64* best, const double* masses, ddt::u64* least, int group) {
  ddt::cut<Cut>(logits, valid, temperature, top_p, top_k, best, masses, least, group);
}

struct MassKept {
  static constexpr int kVocab = 163840;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
  static constexpr bool kAfterCut = true;
};

extern "C" __global__ void __launch_bounds__(256, 1)
mass_kept_m128(const float* logits, const int* valid, const double* temperature,
               const double* top_p, const int* top_k, const ddt::u64* best, const ddt::u64* least,
               double* masses, int group) {
  ddt::mass<MassKept>(logits, valid, temperature, top_p, top_k, best, least, masses, group);
}

struct Draw {
  static constexpr int kVocab = 163840;
  static constexpr int kChunk = 4096;
  static constexpr int kChunks = 40;
  using Logit = float;
};

extern "C" __global__ void __launch_bounds__(256, 1)
draw_m128(const float* logits, const int* valid, const int* positions, const double* temperature,
          const double* top_p, const int* top_k, const ddt::u64* seed, const ddt::u64* request,
          const ddt::u64* best, const double* masses, const ddt::u64* least, int* picks,
          int group) {
  ddt::draw<Draw>(logits, valid, positions, temperature, top_p, top_k, seed, request, best, masses,
                  least, picks, group);
}
