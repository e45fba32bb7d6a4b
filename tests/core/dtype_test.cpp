#include "ridgeline/core/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "ridgeline/core/device.h"
#include "ridgeline/core/precision.h"

namespace ridgeline {
namespace {

constexpr DType kAll[] = {DType::fp64,  DType::fp32,  DType::bf16, DType::fp16,
                          DType::int32, DType::int64, DType::uint8};

TEST(DType, HasANameForEachType) {
  std::set<std::string_view> names;
  for (const DType dtype : kAll) names.insert(name(dtype));
  EXPECT_EQ(names.size(), std::size(kAll));
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(DType, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(size_of(dtype_of<double>()), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<float>()), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<Bf16>()), sizeof(Bf16));
  EXPECT_EQ(size_of(dtype_of<Fp16>()), sizeof(Fp16));
  EXPECT_EQ(size_of(dtype_of<int32_t>()), sizeof(int32_t));
  EXPECT_EQ(size_of(dtype_of<int64_t>()), sizeof(int64_t));
  EXPECT_EQ(size_of(dtype_of<uint8_t>()), sizeof(uint8_t));
}

// The roundoff u is the largest power of two for which 1 + u still rounds to 1.
TEST(DType, UnitRoundoffIsHalfAnUlpAtOne) {
  for (const DType dtype : kAll) {
    if (!is_float(dtype)) {
      EXPECT_EQ(unit_roundoff(dtype), 0.0);
      continue;
    }
    const double u = unit_roundoff(dtype);
    dispatch_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_same_v<T, double>) {
        EXPECT_EQ(1.0 + u, 1.0);
        EXPECT_NE(1.0 + 2 * u, 1.0);
      } else {
        EXPECT_EQ(float(T(float(1.0 + u))), 1.0f) << name(dtype);
        EXPECT_NE(float(T(float(1.0 + 2 * u))), 1.0f) << name(dtype);
      }
    });
  }
}

TEST(DType, DispatchGivesTheTypeAndRefusesIntegers) {
  for (const DType dtype : kAll) {
    const auto dispatch = [&] {
      return dispatch_float(dtype, [](auto zero) { return dtype_of<decltype(zero)>(); });
    };
    if (is_float(dtype)) {
      EXPECT_EQ(dispatch(), dtype);
    } else {
      EXPECT_THROW(dispatch(), Error);
    }
  }
}

TEST(Device, NamesParseBack) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(parse_device("cuda:3"), (Device{DeviceKind::cuda, 3}));
  EXPECT_EQ(to_string(parse_device("cuda:3")), "cuda:3");
  EXPECT_EQ(to_string(parse_device("cpu")), "cpu");
}

TEST(Device, NonsenseIsAUsageError) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CPU"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << text;
    }
  }
}

TEST(Precision, NamesParseBackAndStorageFits) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::fp32x3,
                                    Precision::tf32, Precision::bf16, Precision::fp16}) {
    EXPECT_EQ(parse_precision(name(precision)), precision);
  }
  EXPECT_THROW(parse_precision("int8"), Error);
  EXPECT_EQ(storage(Precision::fp64), DType::fp64);
  EXPECT_EQ(storage(Precision::tf32), DType::fp32);
  EXPECT_EQ(storage(Precision::fp32x3), DType::fp32);
  EXPECT_EQ(storage(Precision::bf16), DType::bf16);
  EXPECT_EQ(storage(Precision::fp16), DType::fp16);
}

}  // namespace
}  // namespace ridgeline
