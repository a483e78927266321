// walk__n8, printed from kernels/kernel.cu.j2.
// The accepted path of every slot in a tree of up to 8 nodes
#include "walk.cuh"

struct Walk {
  static constexpr int kBlock = 8;
  static constexpr int kNodes = 8;
  static constexpr int kRing = 64;
  static constexpr int kRecord = 78;
  static constexpr int kCommitted = 8;
  static constexpr int kAccepted = 16;
  static constexpr int kLists = 24;
  static constexpr int kScores = 60;
  using Stops = ddt::Tokens<4093>;
};

extern "C" __global__ void __launch_bounds__(32, 1)
walk_m128(const int* tokens, const int* nodes, const int* parents, const int* ranks,
          const double* scores, const int* picks, const double* temperature, const int* limit,
          const int* room, const int* heed_stops, int* length, int* anchor, int* produced,
          int* status, int* rounds, int* accepted, int* accepted_count, int* ring, int group) {
  ddt::walk<Walk>(tokens, nodes, parents, ranks, scores, picks, temperature, limit, room,
                  heed_stops, length, anchor, produced, status, rounds, accepted, accepted_count,
                  ring, group);
}
