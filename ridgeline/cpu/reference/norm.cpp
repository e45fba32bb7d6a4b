#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

struct Moments {
  double mean = 0, var = 0;
};

// The mean and deviation of the `count` numbers at(0), at(1), ..., in two passes, so that a large
// mean loses no precision. Sums over many thousands of numbers need more digits than double has
// to be exact in fp64.
template <typename At>
Moments moments(int64_t count, At at) {
  long double sum = 0, squares = 0;
  for (int64_t j = 0; j < count; ++j) sum += at(j);
  const double mean = double(sum / count);
  for (int64_t j = 0; j < count; ++j) squares += (at(j) - mean) * (at(j) - mean);
  return {mean, double(squares / count)};
}

std::unique_ptr<Step> prepare_layer(const LayerNorm& op, ReferenceBinding& binding) {
  return make_step([rows = op.rows(), width = op.width, epsilon = op.epsilon,
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    gamma = binding.reads(op.gamma), beta = binding.reads(op.beta),
                    y = binding.writes(op.y), mean = binding.writes(op.mean),
                    rstd = binding.writes(op.rstd)]() mutable {
    x.load();
    gamma.load();
    beta.load();
    for_each(pool, rows, [&](int64_t r) {
      const Moments m = moments(width, [&](int64_t j) { return x[r * width + j]; });
      const double scale = 1 / std::sqrt(m.var + epsilon);
      for (int64_t j = 0; j < width; ++j) {
        const double unit = (x[r * width + j] - m.mean) * scale;
        y[r * width + j] = unit * (gamma ? gamma[j] : 1.0) + (beta ? beta[j] : 0.0);
      }
      if (mean) mean[r] = m.mean;
      if (rstd) rstd[r] = scale;
    });
    y.store();
    mean.store();
    rstd.store();
  });
}

std::unique_ptr<Step> prepare_layer_grad(const LayerNormGrad& op, ReferenceBinding& binding) {
  return make_step([rows = op.rows(), width = op.width,
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    gamma = binding.reads(op.gamma), mean = binding.reads(op.mean),
                    rstd = binding.reads(op.rstd), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx), dgamma = binding.writes(op.dgamma),
                    dbeta = binding.writes(op.dbeta)]() mutable {
    for (Doubles* operand : {&x, &gamma, &mean, &rstd, &dy}) operand->load();
    const auto unit = [&](int64_t r, int64_t j) { return (x[r * width + j] - mean[r]) * rstd[r]; };
    for_each(pool, dx ? rows : 0, [&](int64_t r) {
      const auto grad = [&](int64_t j) { return dy[r * width + j] * (gamma ? gamma[j] : 1.0); };
      long double sum = 0, along = 0;
      for (int64_t j = 0; j < width; ++j) {
        sum += grad(j);
        along += grad(j) * unit(r, j);
      }
      for (int64_t j = 0; j < width; ++j) {
        dx[r * width + j] =
            rstd[r] * (grad(j) - double(sum / width) - unit(r, j) * double(along / width));
      }
    });
    for_each(pool, dgamma || dbeta ? width : 0, [&](int64_t j) {
      long double sum = 0, along = 0;
      for (int64_t r = 0; r < rows; ++r) {
        sum += dy[r * width + j];
        along += dy[r * width + j] * unit(r, j);
      }
      if (dbeta) dbeta[j] = double(sum);
      if (dgamma) dgamma[j] = double(along);
    });
    dx.store();
    dgamma.store();
    dbeta.store();
  });
}

// Returns the index of number j of channel c, counted over the batch's images.
int64_t place(const Image& in, int64_t c, int64_t j) {
  return (j / in.pixels() * in.c + c) * in.pixels() + j % in.pixels();
}

std::unique_ptr<Step> prepare_batch(const BatchNorm& op, ReferenceBinding& binding) {
  return make_step([count = op.count(), in = op.in, epsilon = op.epsilon, momentum = op.momentum,
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    gamma = binding.reads(op.gamma), beta = binding.reads(op.beta),
                    running_mean = binding.writes(op.running_mean),
                    running_var = binding.writes(op.running_var),
                    batches = binding.write(op.batches), y = binding.writes(op.y),
                    mean = binding.writes(op.mean), rstd = binding.writes(op.rstd)]() mutable {
    for (Doubles* operand : {&x, &gamma, &beta, &running_mean, &running_var}) operand->load();
    for_each(pool, in.c, [&](int64_t c) {
      const Moments m = moments(count, [&](int64_t j) { return x[place(in, c, j)]; });
      const double scale = 1 / std::sqrt(m.var + epsilon);
      for (int64_t j = 0; j < count; ++j) {
        const double unit = (x[place(in, c, j)] - m.mean) * scale;
        y[place(in, c, j)] = gamma ? unit * gamma[c] + beta[c] : unit;
      }
      mean[c] = m.mean;
      rstd[c] = scale;
      const double unbiased = m.var * double(count) / double(count - 1);
      running_mean[c] += momentum * (m.mean - running_mean[c]);
      running_var[c] += momentum * (unbiased - running_var[c]);
    });
    ++*batches.as<int64_t>();
    for (Doubles* operand : {&y, &mean, &rstd, &running_mean, &running_var}) operand->store();
  });
}

std::unique_ptr<Step> prepare_batch_grad(const BatchNormGrad& op, ReferenceBinding& binding) {
  return make_step(
      [count = op.count(), in = op.in, &pool = cpu_runtime(binding.runtime()).pool(),
       x = binding.reads(op.x), gamma = binding.reads(op.gamma), mean = binding.reads(op.mean),
       rstd = binding.reads(op.rstd), dy = binding.reads(op.dy), dx = binding.writes(op.dx),
       dgamma = binding.writes(op.dgamma), dbeta = binding.writes(op.dbeta)]() mutable {
        for (Doubles* operand : {&x, &gamma, &mean, &rstd, &dy}) operand->load();
        for_each(pool, in.c, [&](int64_t c) {
          const auto unit = [&](int64_t at) { return (x[at] - mean[c]) * rstd[c]; };
          long double sum = 0, along = 0;
          for (int64_t j = 0; j < count; ++j) {
            const int64_t at = place(in, c, j);
            sum += dy[at];
            along += dy[at] * unit(at);
          }
          for (int64_t j = 0; dx && j < count; ++j) {
            const int64_t at = place(in, c, j);
            dx[at] = (gamma ? gamma[c] : 1.0) * rstd[c] *
                     (dy[at] - double(sum / count) - unit(at) * double(along / count));
          }
          if (dbeta) dbeta[c] = double(sum);
          if (dgamma) dgamma[c] = double(along);
        });
        dx.store();
        dgamma.store();
        dbeta.store();
      });
}

std::unique_ptr<Step> prepare_batch_infer(const BatchNormInfer& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), in = op.in, epsilon = op.epsilon,
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    gamma = binding.reads(op.gamma), beta = binding.reads(op.beta),
                    mean = binding.reads(op.mean), var = binding.reads(op.var),
                    y = binding.writes(op.y)]() mutable {
    for (Doubles* operand : {&x, &gamma, &beta, &mean, &var}) operand->load();
    for_each(pool, n * in.c, [&](int64_t plane) {
      const int64_t c = plane % in.c;
      const double scale = (gamma ? gamma[c] : 1.0) / std::sqrt(var[c] + epsilon);
      for (int64_t at = plane * in.pixels(); at < (plane + 1) * in.pixels(); ++at) {
        y[at] = (x[at] - mean[c]) * scale + (beta ? beta[c] : 0.0);
      }
    });
    y.store();
  });
}

}  // namespace

KernelTable norm_reference() {
  return {reference_kernel(prepare_layer), reference_kernel(prepare_layer_grad),
          reference_kernel(prepare_batch), reference_kernel(prepare_batch_grad),
          reference_kernel(prepare_batch_infer)};
}

}  // namespace ridgeline::cpu
