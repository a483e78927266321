// gather_features__w768, printed from kernels/kernel.cu.j2.
// Features of the accepted rows, 768 each, for the drafter's context
#include "walk.cuh"

struct GatherFeatures {
  static constexpr int kBlock = 8;
  static constexpr int kWidth = 768;
  static constexpr int kPieces = 4;
  using Piece = uint4;
};

extern "C" __global__ void __launch_bounds__(96, 1)
gather_features_m128(const ddt::bf16* features, const int* accepted, const int* accepted_count,
                     ddt::bf16* context_features, int* positions, const int* committed, int* valid,
                     int group) {
  ddt::gather_features<GatherFeatures>(features, accepted, accepted_count, context_features,
                                       positions, committed, valid, group);
}
