#include "ridgeline/prof/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/prof/cost.h"
#include "ridgeline/prof/roofs.h"

namespace ridgeline::prof {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Ceilings invented() {
  Ceilings ceilings;
  ceilings.fp32_flops = 100e9;
  ceilings.fp64_flops = 50e9;
  ceilings.bandwidths = {{1e6, 80e9}, {256e6, 20e9}};
  ceilings.launch_seconds = 2e-6;
  ceilings.region_seconds = 3e-6;
  ceilings.host_bandwidth = 10e9;
  ceilings.date = "2026-01-31";
  return ceilings;
}

TEST(Roofs, TheOneThatAllowsLeastBinds) {
  Work work;
  work.flops = 1e6;  // 10 us
  work.bytes = 4e5;  // 5 us at the cache's rate
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::compute);
  EXPECT_DOUBLE_EQ(roof_times(work, invented()).least(), 10e-6);
  work.precision = Precision::fp64;
  EXPECT_DOUBLE_EQ(roof_times(work, invented()).least(), 20e-6);
  work.bytes = 8e6;  // 400 us from memory
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::memory);
  EXPECT_DOUBLE_EQ(roof_times(work, invented()).least(), 400e-6);
  work.launches = 300;
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::launch);
  work.regions = 300;
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::barrier);
  EXPECT_DOUBLE_EQ(roof_times(work, invented()).least(), 900e-6);
  work.host_bytes = 1e8;
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::pcie);
  work.network_bytes = 1e12;  // nothing was measured: it cannot bind
  EXPECT_EQ(roof_times(work, invented()).binding(), Roof::pcie);
  EXPECT_STREQ(name(Roof::pcie), "PCIe");
}

// x[4, 8] -> linear w[2, 8] -> y[4, 2] -> relu -> z[4, 2] -> mse -> loss
struct SmallNet {
  Program program;
  SmallNet() {
    const Value x = program.add_value("x", DType::fp32, {4, 8});
    const Value w = program.add_value("w", DType::fp32, {2, 8}, Role::param);
    const Value y = program.add_value("y", DType::fp32, {4, 2});
    const Value z = program.add_value("z", DType::fp32, {4, 2});
    const Value dw = program.add_value("dw", DType::fp32, {2, 8});
    const Value lr = program.add_value("lr", DType::fp64, {1}, Role::input);
    const Value tick = program.add_value("tick", DType::int32, {1}, Role::state);
    program.add(Linear{x, w, {}, y});
    program.add(Activation{ActivationKind::relu, y, z});
    program.add(LinearGradW{x, z, dw, {}});
    program.add(SgdUpdate{w, dw, {}, lr, tick, {}});
  }
};

TEST(Cost, OfSpansByHand) {
  const SmallNet net;
  const Program& p = net.program;
  EXPECT_EQ(span_flops(p, 0, 2), 2 * 4 * 8 * 2 + 8);
  // x 128, w 64, y 32
  EXPECT_EQ(span_bytes(p, 0, 1), 224);
  EXPECT_EQ(span_bytes(p, 1, 2), 64);
  // Fused, y is neither written nor read back: x 128, w 64, z 32.
  EXPECT_EQ(span_bytes(p, 0, 2), 224);
  // y is read outside a span of the linear alone, z outside one of both.
  // The weight's gradient and its update: x 128, z 32, w read and written 128; dw stays on chip.
  EXPECT_EQ(span_bytes(p, 2, 4), 288);
  // All: x once, w once each way.
  EXPECT_EQ(span_bytes(p, 0, 4), 128 + 128);
}

TEST(Cost, OfAStepThatAddsUpGradientsOverRanks) {
  SmallNet net;
  Program& p = net.program;
  const auto value = [&](const char* name) {
    return std::ranges::find(p.values, name, &ValueInfo::name)->value;
  };
  const Value x = value("x"), z = value("z"), w = value("w"), dw = value("dw");
  const Value sum = p.add_value("sum", DType::fp32, {2, 8});
  const Value token = p.add_value("token", DType::int64, {1});
  p.ops.erase(p.ops.begin() + 2, p.ops.end());
  p.add(LinearGradW{x, z, dw, {}});
  p.add(AllReduceStart{{dw}, {sum}, token, 2, DType::fp32});
  p.add(AllReduceWait{{dw}, {sum}, token});
  p.add(SgdUpdate{w, sum, {}, value("lr"), value("tick"), {}});
  // As one kernel: x 128, z 32, w read and written 128; dw and its sum stay on chip.
  EXPECT_EQ(span_bytes(p, 2, 6), 288);
  // As a whole step: x once, w once each way.
  EXPECT_EQ(span_bytes(p, 0, 6), 128 + 128);
}

Roofline many_points(int count) {
  Roofline roofline;
  roofline.title = "a <test>";
  roofline.ceilings = invented();
  for (int i = 0; i < count; ++i) {
    roofline.points.push_back(
        {fmt::format("kernel & {}", i), 1e6 * (1 + i % 3), 1e5, 20e-6, 1.0 / count});
  }
  return roofline;
}

TEST(Roofline, NamesEveryKernelAndEveryRoof) {
  Roofline roofline = many_points(3);
  roofline.points.push_back({"cpu.gather.simd", 0, 1e5, 1e-6, 0});
  const std::string svg = to_svg(roofline);
  EXPECT_THAT(svg, HasSubstr("a &lt;test&gt;"));
  EXPECT_THAT(svg, HasSubstr("kernel &amp; 2"));
  EXPECT_THAT(svg, HasSubstr("100 GFLOP/s fp32"));
  EXPECT_THAT(svg, HasSubstr("20 GB/s memory"));
  EXPECT_THAT(svg, HasSubstr("80 GB/s within 1 MB"));
  EXPECT_THAT(svg, HasSubstr("0 %; not drawn"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Roofline, LevelsMeasuredAmissLeaveTheFlatRoof) {
  Roofline roofline = many_points(1);
  roofline.ceilings.bandwidths.front().rate = 1e6;  // slower than memory: a busy machine
  const std::string svg = to_svg(roofline);
  const size_t at = svg.find("FLOP/s fp32");
  ASSERT_NE(at, std::string::npos);
  // Its name is at the ridge of the fastest level, 5 FLOP per byte, left of the middle.
  const std::string x = svg.substr(svg.rfind(" x=\"", at) + 4, 5);
  EXPECT_LT(std::stod(x), 500) << x;
}

TEST(Roofline, NothingToDrawIsStillADrawing) {
  Roofline empty;
  empty.ceilings = invented();
  EXPECT_TRUE(to_svg(empty).ends_with("</svg>\n"));
}

TEST(Labels, DoNotOverlap) {
  std::vector<Circle> circles;
  for (int i = 0; i < 24; ++i) circles.push_back({200 + 7.0 * (i % 5), 150 + 5.0 * (i / 5), 5});
  const Box within{60, 40, 600, 300};
  const auto boxes = place_labels(circles, within, 15, 12);
  ASSERT_EQ(boxes.size(), circles.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_GE(boxes[i].x, within.x);
    EXPECT_LE(boxes[i].y + boxes[i].height, within.y + within.height);
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(boxes[i].overlaps(boxes[j])) << i << ' ' << j;
  }
}

}  // namespace
}  // namespace ridgeline::prof
