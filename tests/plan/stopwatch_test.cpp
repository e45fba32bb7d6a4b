// The data on which kernels are timed.
#include "ridgeline/plan/stopwatch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

// Codes of a text are bytes: codes past the vocabulary would be looked up past the end of an
// embedding.
TEST(DeviceStopwatch, FillsBytesAndIntegersBelowTheirBound) {
  Program program;
  const Value bytes = program.add_value("bytes", DType::uint8, {1000}, Role::input, 65);
  const Value any = program.add_value("any", DType::uint8, {1000}, Role::input, 256);
  const Value one = program.add_value("one", DType::uint8, {1000}, Role::input, 1);
  const Value x = program.add_value("x", DType::fp32, {8}, Role::input);
  program.add(
      Activation{ActivationKind::relu, x, program.add_value("y", DType::fp32, {8}, Role::output)});
  int largest = -1, largest_of_any = -1, largest_of_one = -1;
  const Kernel kernel{"kernel", DeviceKind::cpu, [](const RemainingOps&) { return Cover::of(1); },
                      [&](const Span&, const Binding& binding) {
                        const auto most = [&](const Value& value) {
                          const uint8_t* from = binding.read(value).as<uint8_t>();
                          return int(*std::max_element(from, from + value.shape.numel()));
                        };
                        largest = most(bytes);
                        largest_of_any = most(any);
                        largest_of_one = most(one);
                        return make_step([] {});
                      }};
  const auto runtime = make_runtime(Device{}, 1);
  DeviceStopwatch stopwatch(program, *runtime, 1e-4, nullptr);
  Choice choice;
  choice.kernel = &kernel;
  choice.begin = 0;
  choice.end = 1;
  choice.cover = Cover::of(1);
  stopwatch.kernel(choice);
  EXPECT_GT(largest, 32);
  EXPECT_LT(largest, 65);
  EXPECT_GT(largest_of_any, 128);
  EXPECT_EQ(largest_of_one, 0);  // a vocabulary of one code has no other
}

}  // namespace
}  // namespace ridgeline
