#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Returns the channel of number j of run r, which has a gamma and a beta.
template <typename Op>
struct Channels {
  explicit Channels(const Op& op)
      : groups(op.groups), width(op.width), spatial(op.spatial), count(op.channels()) {}
  int64_t of(int64_t r, int64_t j) const { return (r % groups * width + j) / spatial; }

  int64_t groups, width, spatial, count;
};

std::unique_ptr<Step> prepare_group_norm(const GroupNorm& op, ReferenceBinding& binding) {
  return make_step(
      [runs = op.runs(), width = op.width, channels = Channels(op), epsilon = op.epsilon,
       centred = op.centred, &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
       gamma = binding.reads(op.gamma), beta = binding.reads(op.beta), y = binding.writes(op.y),
       mean = binding.writes(op.mean), rstd = binding.writes(op.rstd)]() mutable {
        for (Doubles* operand : {&x, &gamma, &beta}) operand->load();
        for_each(pool, runs, [&](int64_t r) {
          const double* run = x.data() + r * width;
          double centre = 0, var = 0;
          for (int64_t j = 0; centred && j < width; ++j) centre += run[j] / double(width);
          for (int64_t j = 0; j < width; ++j) var += (run[j] - centre) * (run[j] - centre);
          const double scale = 1 / std::sqrt(var / double(width) + epsilon);
          for (int64_t j = 0; j < width; ++j) {
            const int64_t c = channels.of(r, j);
            y[r * width + j] =
                (run[j] - centre) * scale * (gamma ? gamma[c] : 1.0) + (beta ? beta[c] : 0.0);
          }
          if (mean) mean[r] = centre;
          if (rstd) rstd[r] = scale;
        });
        for (Doubles* operand : {&y, &mean, &rstd}) operand->store();
      });
}

std::unique_ptr<Step> prepare_group_norm_grad(const GroupNormGrad& op, ReferenceBinding& binding) {
  return make_step(
      [runs = op.runs(), width = op.width, channels = Channels(op), centred = op.centred,
       &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
       gamma = binding.reads(op.gamma), mean = binding.reads(op.mean),
       rstd = binding.reads(op.rstd), dy = binding.reads(op.dy), dx = binding.writes(op.dx),
       dgamma = binding.writes(op.dgamma), dbeta = binding.writes(op.dbeta)]() mutable {
        for (Doubles* operand : {&x, &gamma, &mean, &rstd, &dy}) operand->load();
        const auto unit = [&](int64_t r, int64_t j) {
          return (x[r * width + j] - (mean ? mean[r] : 0.0)) * rstd[r];
        };
        for_each(pool, dx ? runs : 0, [&](int64_t r) {
          const auto grad = [&](int64_t j) {
            return dy[r * width + j] * (gamma ? gamma[channels.of(r, j)] : 1.0);
          };
          double sum = 0, along = 0;
          for (int64_t j = 0; j < width; ++j) {
            sum += centred ? grad(j) : 0.0;
            along += grad(j) * unit(r, j);
          }
          for (int64_t j = 0; j < width; ++j) {
            dx[r * width + j] =
                rstd[r] * (grad(j) - sum / double(width) - unit(r, j) * along / double(width));
          }
        });
        // Channel c is in the same group of each sample.
        for_each(pool, dgamma || dbeta ? channels.count : 0, [&](int64_t c) {
          const int64_t group = c * channels.spatial / width, begin = c * channels.spatial % width;
          double sum = 0, along = 0;
          for (int64_t r = group; r < runs; r += channels.groups) {
            for (int64_t j = begin; j < begin + channels.spatial; ++j) {
              sum += dy[r * width + j];
              along += dy[r * width + j] * unit(r, j);
            }
          }
          if (dbeta) dbeta[c] = sum;
          if (dgamma) dgamma[c] = along;
        });
        for (Doubles* operand : {&dx, &dgamma, &dbeta}) operand->store();
      });
}

}  // namespace

KernelTable group_norm_reference() {
  return {reference_kernel(prepare_group_norm), reference_kernel(prepare_group_norm_grad)};
}

}  // namespace ridgeline::cpu
