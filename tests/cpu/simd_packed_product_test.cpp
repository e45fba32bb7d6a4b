// Products with a packed operand, and the work stealing with which threads share their tasks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "ridgeline/core/philox.h"
#include "ridgeline/cpu/simd/packed_product.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::vector<T> numbers(size_t count, uint64_t seed) {
  const Philox random{seed, 1};
  std::vector<T> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = T(2 * random.uniform(i) - 1);
  return all;
}

template <typename T>
class PackedProducts : public testing::Test {
 protected:
  // c = (c or bias) + a[rows, depth] . b[depth, panels * kPanel], by three threads.
  void check(int64_t rows, int64_t depth, int64_t panels, bool transposed, bool add) {
    SCOPED_TRACE(testing::Message()
                 << rows << " x " << depth << ", " << panels << " panels"
                 << (transposed ? ", transposed" : "") << (add ? ", added" : ""));
    const auto a = numbers<T>(size_t(rows * depth), 1), bias = numbers<T>(size_t(rows), 2);
    const auto b = numbers<T>(size_t(panels * depth * kPanel<T>), 3);
    const auto before = numbers<T>(size_t(panels * rows * kPanel<T>), 4);
    auto c = before;
    std::vector<T> packed(packed_elements<T>(rows, depth));
    packed_functions<T>().pack(a.data(), transposed ? 1 : depth, transposed ? rows : 1, rows, depth,
                               packed.data(), {0, packed_tiles<T>(rows)});
    PackedProductArgs<T> args{packed.data(),    b.data(), c.data(), depth * kPanel<T>,
                              rows * kPanel<T>, rows,     depth,    bias.data()};
    args.add = add;
    ThreadPool pool(3);
    std::vector<int64_t> counters(WorkStealing::counters(pool.size()));
    const WorkStealing work(counters.data(), pool.size());
    work.clear();
    pool.run([&](int thread) { multiply_stealing(work, thread, 0, args, panels); });
    for (int64_t i = 0; i < int64_t(c.size()); ++i) {
      const int64_t panel = i / (rows * kPanel<T>), row = i / kPanel<T> % rows,
                    lane = i % kPanel<T>;
      double sum = add ? before[size_t(i)] : bias[size_t(row)], size = std::abs(sum);
      for (int64_t k = 0; k < depth; ++k) {
        const double product = double(a[size_t(transposed ? k * rows + row : row * depth + k)]) *
                               double(b[size_t((panel * depth + k) * kPanel<T> + lane)]);
        sum += product;
        size += std::abs(product);
      }
      const double bound = double(depth + 1) * double(std::numeric_limits<T>::epsilon()) * size;
      ASSERT_NEAR(c[size_t(i)], sum, bound) << "panel " << panel << " row " << row;
    }
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PackedProducts, Types);

TYPED_TEST(PackedProducts, AgreeWithDoublesInEveryShape) {
  for (const int64_t rows : {1, 8, 13, 150}) {
    for (const int64_t depth : {1, 127, 128, 300}) {
      for (const int64_t panels : {1, 3, 19}) {
        this->check(rows, depth, panels, rows % 2 == 0, depth % 2 == 0);
      }
    }
  }
}

TEST(WorkStealing, RunsEachTaskOnceWhicheverThreadIsDelayed) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t count : {0, 1, 4, 37}) {
      ThreadPool pool(threads);
      std::vector<int64_t> counters(WorkStealing::counters(threads));
      const WorkStealing work(counters.data(), threads);
      constexpr int64_t kRounds = 5;
      std::vector<std::atomic<int>> done(size_t(kRounds * count));
      for (int pass = 0; pass < 2; ++pass) {  // counters of an earlier pass do not matter
        work.clear();
        pool.run([&](int thread) {
          for (int64_t round = 0; round < kRounds; ++round) {
            if (thread == round % threads)
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
            work.run(thread, round, count,
                     [&](int64_t task) { ++done[size_t(round * count + task)]; });
            pool.barrier();
          }
        });
        for (const auto& times : done) ASSERT_EQ(times, pass + 1);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cpu::simd
