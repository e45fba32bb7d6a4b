// Compares the oracle of the image ops with PyTorch's numbers (torch 2, fp64) and some computed by
// hand.
#include "tests/ops/hand.h"

namespace ridgeline::test {
namespace {

// sin(i * step + start), from which the stored vectors were made.
std::vector<double> wave(const Shape& shape, double step, double start = 0) {
  std::vector<double> numbers(size_t(shape.numel()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(double(i) * step + start);
  return numbers;
}

TEST(Reference, Conv2dAsPyTorch) {
  CaseBuilder c("", DType::fp64);
  const Conv2dShape shape{{4, 5, 4}, 2, {{2, 2, 1, 2}, {2, 1, 0, 1}}, 2};
  ASSERT_EQ(shape.out(), (Image{2, 3, 3}));
  const Value x = c.in("x", {2, 80}), w = c.param("w", shape.weight()), b = c.param("b", {2});
  const Value y = c.out("y", {2, 18}), dy = c.in("dy", {2, 18}), dx = c.out("dx", {2, 80});
  const Value dw = c.out("dw", shape.weight()), db = c.out("db", {2});
  c.add(Conv2d{x, w, b, y, shape});
  c.add(Conv2dGradX{dy, w, dx, shape});
  c.add(Conv2dGradW{x, dy, dw, db, shape});
  Hand hand(c.done());
  hand.set(x, wave(x.shape, 0.7)).set(w, wave(w.shape, 1.3)).set(b, wave(b.shape, 0.9, 0.5));
  hand.set(dy, wave(dy.shape, 0.37)).run();
  hand.expect_printed(
      y, {-0.304225592799, -0.269169393511, 0.11796269947,    0.254126511202,   -0.416013818781,
          -0.66501502736,  0.945545100859,  0.708105751599,   0.363114524941,   0.988991179769,
          1.59677253559,   1.91703922376,   -0.0431220567914, -0.236525132537,  0.144785663448,
          1.53859691782,   0.526853795274,  -0.26920449342,   -0.0683901792506, -0.330190028107,
          -0.211215025346, 0.872626193517,  0.0874817200208,  -0.513325451305,  0.980615906143,
          0.910304539209,  0.637344045619,  0.49574456134,    1.13137429305,    1.69837342262,
          0.46024893847,   -0.133227725135, -0.200572901779,  2.17119256832,    1.32595375228,
          0.320570574035});
  hand.expect_printed(dx, {0,
                           0,
                           0,
                           0,
                           0,
                           1.0494710515,
                           1.05847862616,
                           0.462492183101,
                           0,
                           0,
                           0,
                           0,
                           0.461733901207,
                           0.664883877687,
                           0.315552757334,
                           -0.487117542084,
                           0,
                           0,
                           0,
                           0});
  hand.expect_printed(dw, {1.08197365596, -2.71959726662, 1.86098437152, -2.47388644232,
                           -5.30645148075, -5.23410315999, -5.73829164154, -6.10940448304,
                           2.00657661131, -1.21724951937, 3.58030331414, -0.983602831618,
                           -3.95729487497, -4.68353249906, -5.23367660578, -6.79669910233});
  hand.expect_printed(db, {10.5823483657, -10.2009972297});
}

TEST(Reference, PoolsAsPyTorch) {
  CaseBuilder c("", DType::fp64);
  const PoolShape shape{{1, 4, 5}, {{3, 2, 1, 1}, {3, 2, 1, 1}}};
  const Value x = c.in("x", {1, 20}), max = c.out("max", {1, 6});
  const Value all = c.out("all", {1, 6}), image = c.out("image", {1, 6});
  c.add(MaxPool{x, max, shape});
  c.add(AvgPool{x, all, shape, PoolCount::window});
  c.add(AvgPool{x, image, shape, PoolCount::image});
  Hand hand(c.done());
  hand.set(x, wave(x.shape, 0.8)).run();
  hand.expect_printed(max, {0.7173560909, 0.999573603042, 0.793667863849, 0.989358246623,
                            0.965657776549, 0.965657776549});
  hand.expect_printed(all, {-0.11506789036, 0.0979456480705, 0.169700678425, -0.0537505286142,
                            0.0142457019148, 0.061696592874});
  hand.expect_printed(image, {-0.258902753311, 0.146918472106, 0.381826526456, -0.0806257929213,
                              0.0142457019148, 0.092544889311});
}

TEST(Reference, OfEqualPixelsTheFirstGetsTheGradient) {
  CaseBuilder c("", DType::fp64);
  const PoolShape shape{{1, 2, 4}, {{2, 2, 0, 1}, {2, 2, 0, 1}}};
  const Value x = c.in("x", {1, 8}), y = c.out("y", {1, 2}), dy = c.in("dy", {1, 2});
  const Value dx = c.out("dx", {1, 8});
  c.add(MaxPool{x, y, shape});
  c.add(MaxPoolGrad{x, y, dy, dx, shape});
  Hand hand(c.done());
  hand.set(x, {0, 0, 1, 2, 0, 0, 2, 1}).set(dy, {5, 7}).run();
  hand.expect_printed(y, {0, 2});
  hand.expect_printed(dx, {5, 0, 0, 7, 0, 0, 0, 0});
}

TEST(Reference, LayerNormAsPyTorch) {
  CaseBuilder c("", DType::fp64);
  const Shape shape{2, 6};
  const Value x = c.in("x", shape), gamma = c.param("gamma", {6}), beta = c.param("beta", {6});
  const Value y = c.out("y", shape), mean = c.out("mean", {2}), rstd = c.out("rstd", {2});
  const Value dy = c.in("dy", shape), dx = c.out("dx", shape);
  const Value dgamma = c.out("dgamma", {6}), dbeta = c.out("dbeta", {6});
  c.add(LayerNorm{x, gamma, beta, y, mean, rstd, 6});
  c.add(LayerNormGrad{x, gamma, mean, rstd, dy, dx, dgamma, dbeta, 6});
  Hand hand(c.done());
  hand.set(x, wave(shape, 0.9)).set(gamma, wave({6}, 0.4, 1)).set(beta, wave({6}, 0.3));
  hand.set(dy, wave(shape, 0.21)).run();
  hand.expect_printed(y, {-0.15698826169, 1.24192747095, 1.77157176497, 1.13842207705,
                          0.50185250952, 0.769182422798, -1.24333156421, 0.0715208550435,
                          1.54122382209, 1.81969542313, 1.13753885312, 0.859420542521});
  hand.expect_printed(dx, {-0.369509510263, -0.17515309398, 0.0796036838638, 0.269851875192,
                           0.252668194933, -0.0574611497465, 0.438519926955, 0.516690591926,
                           0.29463954535, -0.0685863126473, -0.434189342829, -0.747074408754});
  hand.expect_printed(dgamma, {-1.40677931272, -0.025952055142, 1.50218785714, 1.47585004224,
                               -0.277295383525, -2.12642677398});
  hand.expect_printed(dbeta, {0.952090341591, 1.20338424962, 1.40180365526, 1.53863037281,
                              1.60785248662, 1.60642850365});
}

TEST(Reference, BatchNormKeepsRunningStatistics) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {2, 2}), y = c.out("y", {2, 2});
  const Value mean = c.out("mean", {1}), rstd = c.out("rstd", {1});
  const Value running_mean = c.state("running_mean", {1});
  const Value running_var = c.state("running_var", {1});
  const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(3));
  c.add(BatchNorm{
      x, {}, {}, running_mean, running_var, batches, y, mean, rstd, {1, 1, 2}, 0.0, 0.25});
  Hand hand(c.done());
  hand.set(x, {1, 3, 5, 7}).set(running_mean, {2}).set(running_var, {1}).run();
  // mean 4, variance 5, unbiased 20/3
  const double unit = 1 / std::sqrt(5.0);
  hand.expect_printed(y, {-3 * unit, -unit, unit, 3 * unit});
  hand.expect_printed(mean, {4});
  hand.expect_printed(rstd, {unit});
  hand.expect_printed(running_mean, {2.5});
  hand.expect_printed(running_var, {1 + 0.25 * (20.0 / 3 - 1)});
  hand.expect_printed(batches, {4});
}

TEST(Reference, AugmentationMovesAndMirrorsByItsDraw) {
  // A draw is a function of only seed, epoch and sample, stays within its bounds, and is not always
  // the same.
  int moved = 0, mirrored = 0;
  for (uint64_t sample = 0; sample < 1000; ++sample) {
    const auto draw = Augmentation::draw(5, 2, true, 3, sample);
    EXPECT_LE(std::abs(draw.down), 2);
    EXPECT_LE(std::abs(draw.right), 2);
    moved += draw.down == 2;
    mirrored += draw.flip;
    const auto again = Augmentation::draw(5, 2, true, 3, sample);
    EXPECT_TRUE(draw.down == again.down && draw.right == again.right && draw.flip == again.flip);
  }
  EXPECT_NEAR(moved, 200, 5 * std::sqrt(1000 * 0.2 * 0.8));
  EXPECT_NEAR(mirrored, 500, 5 * std::sqrt(1000 * 0.25));

  CaseBuilder c("", DType::fp64);
  const Value set = c.make("set", DType::uint8, {1, 2, 3}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {7}, Role::input, constant(0), 1);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(0));
  const Value epoch = c.make("epoch", DType::int64, {1}, Role::input, constant(9));
  const Value y = c.out("y", {1, 6});
  const Augmentation how{11, 1, true};
  c.add(GatherAugment{set, order, first, c.tick(), epoch, y, 1, 100, {1, 2, 3}, how});
  Hand hand(c.done());
  hand.set(set, {1, 2, 3, 4, 5, 6}).run();
  const auto draw = Augmentation::draw(11, 1, true, 9, 0);
  std::vector<double> want;
  for (int64_t p = 0; p < 2; ++p) {
    for (int64_t q = 0; q < 3; ++q) {
      const int64_t r = p - draw.down, s = (draw.flip ? 2 - q : q) - draw.right;
      want.push_back(100 + (r < 0 || r > 1 || s < 0 || s > 2 ? 0.0 : double(r * 3 + s + 1)));
    }
  }
  hand.expect_printed(y, want);
}

}  // namespace
}  // namespace ridgeline::test
