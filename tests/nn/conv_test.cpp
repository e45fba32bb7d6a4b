// Layers on images: their names in configs, the shapes they give and refuse, and a whole network
// compared with PyTorch.
#include "ridgeline/nn/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model_file.h"
#include "tests/nn/expect_error.h"
#include "tests/nn/read.h"
#include "tests/support/oracle.h"

namespace ridgeline::nn {
namespace {

std::vector<LayerPtr> read_all(const std::vector<std::string>& texts) {
  std::vector<LayerPtr> layers;
  for (const std::string& text : texts) layers.push_back(read(text));
  return layers;
}

Shape output(const std::string& text, const Shape& input) { return read(text)->output(input); }

TEST(ImageLayers, GiveTheShapesOfPyTorch) {
  EXPECT_EQ(output("{ type = \"conv2d\", out = 8, kernel = 5 }", {28, 28}), (Shape{8, 24, 24}));
  EXPECT_EQ(output("{ type = \"conv2d\", out = 8, kernel = [3, 5], stride = [2, 1], padding = 1, "
                   "dilation = [1, 2], groups = 2 }",
                   {4, 11, 12}),
            (Shape{8, 6, 6}));
  EXPECT_EQ(output("{ type = \"conv1d\", out = 6, kernel = 3, padding = 1 }", {5, 17}),
            (Shape{6, 17}));
  EXPECT_EQ(output("{ type = \"conv1d\", out = 6, kernel = 3 }", {17}), (Shape{6, 15}));
  EXPECT_EQ(output("{ type = \"maxpool2d\", kernel = 2 }", {8, 7, 9}), (Shape{8, 3, 4}));
  EXPECT_EQ(output("{ type = \"maxpool2d\", kernel = 3, stride = 2, padding = 1 }", {8, 7, 9}),
            (Shape{8, 4, 5}));
  EXPECT_EQ(output("{ type = \"maxpool1d\", kernel = 2 }", {8, 9}), (Shape{8, 4}));
  EXPECT_EQ(output("{ type = \"avgpool2d\", kernel = [2, 1] }", {8, 6, 5}), (Shape{8, 3, 5}));
  EXPECT_EQ(output("{ type = \"avgpool1d\", kernel = 3, stride = 1 }", {8, 9}), (Shape{8, 7}));
  EXPECT_EQ(output("{ type = \"global_avgpool\" }", {8, 6, 5}), (Shape{8}));
  EXPECT_EQ(output("{ type = \"global_avgpool\" }", {8, 9}), (Shape{8}));
  EXPECT_EQ(output("{ type = \"layernorm\" }", {8, 6, 5}), (Shape{8, 6, 5}));
  EXPECT_EQ(output("{ type = \"batchnorm\" }", {8, 6, 5}), (Shape{8, 6, 5}));
}

TEST(ImageLayers, AreWrittenAsTheyAreRead) {
  for (const char* text :
       {"{ type = \"conv2d\", out = 8, kernel = [3, 5], stride = [2, 1], padding = 1, groups = 2 }",
        "{ type = \"conv1d\", out = 8, kernel = 3, bias = false }",
        "{ type = \"maxpool2d\", kernel = 2 }", "{ type = \"maxpool1d\", kernel = 4, stride = 2 }",
        "{ type = \"avgpool2d\", kernel = 3, padding = 1, count_include_pad = false }",
        "{ type = \"avgpool1d\", kernel = 3 }", "{ type = \"global_avgpool\" }",
        "{ type = \"layernorm\", dims = 2, eps = 1e-3, affine = false }",
        "{ type = \"batchnorm\", eps = 1e-3, momentum = 0.2 }"}) {
    const std::string once = read(text)->to_toml();
    EXPECT_EQ(read(once)->to_toml(), once);
  }
}

TEST(ImageLayers, NameTheLayerAndBothShapesWhenTheyDoNotFit) {
  const auto build = [](const std::string& text, const Shape& input) {
    return [=] { Model({read("{ type = \"relu\" }"), read(text)}, input); };
  };
  test::expect_error(ErrorKind::usage, {"layer 1", "conv2d", "[1, 4, 4]", "7x7", "4x4"},
                     build("{ type = \"conv2d\", out = 8, kernel = 7 }", {1, 4, 4}));
  test::expect_error(ErrorKind::usage, {"layer 1", "conv2d", "[784]", "[channels, height, width]"},
                     build("{ type = \"conv2d\", out = 8, kernel = 7 }", {784}));
  test::expect_error(ErrorKind::usage, {"layer 1", "conv2d", "[3, 8, 8]", "2 groups"},
                     build("{ type = \"conv2d\", out = 8, kernel = 3, groups = 2 }", {3, 8, 8}));
  test::expect_error(ErrorKind::usage, {"layer 1", "maxpool2d", "[8, 1, 1]", "2x2"},
                     build("{ type = \"maxpool2d\", kernel = 2 }", {8, 1, 1}));
  test::expect_error(ErrorKind::usage, {"layer 1", "layernorm", "[8]", "2"},
                     build("{ type = \"layernorm\", dims = 2 }", {8}));
}

TEST(ImageLayers, RefuseSettingsThatMakeNoSense) {
  test::expect_error(ErrorKind::usage, {"groups", "divide"},
                     [] { read("{ type = \"conv2d\", out = 7, kernel = 3, groups = 2 }"); });
  test::expect_error(ErrorKind::usage, {"padding", "half"},
                     [] { read("{ type = \"maxpool2d\", kernel = 2, padding = 2 }"); });
  test::expect_error(ErrorKind::usage, {"kernel", "array of 2"},
                     [] { read("{ type = \"conv2d\", out = 7, kernel = [3, 3, 3] }"); });
  test::expect_error(ErrorKind::usage, {"kernel", "0"},
                     [] { read("{ type = \"conv2d\", out = 7, kernel = [3, 0] }"); });
}

TEST(ImageLayers, AGroupOfOneSampleCannotTrainABatchNorm) {
  const Model model(read_all({"{ type = \"linear\", out = 3 }", "{ type = \"batchnorm\" }"}), {4});
  LowerOptions options;
  options.classes = 3;
  test::expect_error(ErrorKind::usage, {"layer 1", "batchnorm", "two or more"},
                     [&] { lower(model, options); });
  // A batch of eight is large enough, but not for eight ranks.
  options.global_batch = options.ranks = 8;
  options.order_samples = options.set_samples = 8;
  test::expect_error(ErrorKind::usage, {"layer 1", "a batch of 8", "8 ranks", "train.batch of 16"},
                     [&] { lower(model, options); });
}

// nn.Sequential(Conv2d(1, 2, 3, padding=1), BatchNorm2d(2), ReLU(), MaxPool2d(2), Flatten(),
// Linear(8, 3)) on two images of 4x5, with weights sin(0.61 i + number of the tensor), plus one and
// a half for the running variance; torch 2 in fp64.
class TorchNet {
 public:
  explicit TorchNet(Mode mode)
      : model_(read_all({"{ type = \"conv2d\", out = 2, kernel = 3, padding = 1 }",
                         "{ type = \"batchnorm\" }", "{ type = \"relu\" }",
                         "{ type = \"maxpool2d\", kernel = 2 }", "{ type = \"flatten\" }",
                         "{ type = \"linear\", out = 3 }"}),
               {4, 5}, DType::fp64) {
    model_.initialise(1);
    for (size_t i = 0; i < model_.params().size(); ++i) {
      const Param& param = model_.params()[i];
      if (param.kind == ParamKind::counter) continue;
      const auto to = param.value.span<double>();
      const double more = param.name == "1.running_var" ? 1.5 : 0.0;
      for (size_t j = 0; j < to.size(); ++j) to[j] = std::sin(double(j) * 0.61 + double(i)) + more;
    }
    LowerOptions options;
    options.mode = mode;
    options.precision = Precision::fp64;
    options.batch = options.set_samples = options.order_samples = 2;
    options.classes = 3;
    options.scale = 1.0 / 255;
    lowered_ = lower(model_, options);
  }

  const Model& model() const { return model_; }
  const Lowered& lowered() const { return lowered_; }

  test::Arrays run() const {
    test::Arrays arrays(lowered_.program);
    for (const ValueInfo& info : lowered_.program.values) {
      if (info.role != Role::temp && info.role != Role::output) {
        std::memset(arrays[info.value].data, 0, arrays[info.value].bytes());
      }
    }
    for (int i = 0; i < 40; ++i) {
      arrays[lowered_.inputs].as<uint8_t>()[i] = uint8_t(i * 37 % 256);
    }
    arrays[lowered_.order].as<int32_t>()[1] = 1;
    if (lowered_.targets) arrays[lowered_.targets].as<int32_t>()[0] = 2;
    for (size_t i = 0; i < lowered_.params.size(); ++i) {
      const Tensor& from = model_.params()[i].value.view();
      std::memcpy(arrays[lowered_.params[i]].data, from.data, from.bytes());
    }
    test::Reference().run(lowered_.program, 0, lowered_.program.ops.size(), arrays);
    return arrays;
  }

  Value value(const std::string& name) const {
    for (const ValueInfo& info : lowered_.program.values) {
      if (info.name == name) return info.value;
    }
    return {};
  }

 private:
  Model model_;
  Lowered lowered_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 2e-10) << what << " " << i;  // kept to 12 digits
  }
}

TEST(TorchNet, HasPyTorchsNames) {
  const TorchNet net(Mode::infer);
  const char* names[] = {"0.weight",
                         "0.bias",
                         "1.weight",
                         "1.bias",
                         "1.running_mean",
                         "1.running_var",
                         "1.num_batches_tracked",
                         "5.weight",
                         "5.bias"};
  ASSERT_EQ(net.model().params().size(), std::size(names));
  for (size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(net.model().params()[i].name, names[i]);
  EXPECT_EQ(net.model().params()[0].value.view().shape, (Shape{2, 1, 3, 3}));
  EXPECT_EQ(net.model().params()[6].value.view().dtype, DType::int64);
  EXPECT_EQ(net.model().params()[6].value.view().shape, Shape{});
  EXPECT_EQ(net.model().parameter_count(), 18 + 2 + 4 + 24 + 3);  // without the statistics
}

TEST(TorchNet, InfersAsPyTorchDoes) {
  const TorchNet net(Mode::infer);
  expect_near(net.run().doubles(net.lowered().outputs.id),
              {0.799926645349, 0.200071546367, 1.8082842077e-06, 0.813921345341, 0.186077162873,
               1.49178672964e-06},
              "probabilities");
}

TEST(TorchNet, TrainsAsPyTorchDoes) {
  const TorchNet net(Mode::train);
  const test::Arrays arrays = net.run();
  const auto got = [&](const std::string& name) { return arrays.doubles(net.value(name).id); };
  expect_near(
      got("x6"),
      {3.17483758391, 3.02967162312, -1.21402375516, 3.13356930363, 3.09701059855, -1.15028751248},
      "x6");
  EXPECT_NEAR(got("loss")[0], 2.85036178297, 1e-10);
  expect_near(got("1.running_mean"), {-0.56316877876, -0.736594372609}, "running_mean");
  expect_near(got("1.running_var"), {0.560423401175, 0.805239499741}, "running_var");
  EXPECT_EQ(got("1.num_batches_tracked")[0], 1);
  const std::pair<const char*, std::vector<double>> grads[] = {
      {"0.weight",
       {0.060586470163, -0.24790554182, 0.354979395865, -0.0458818956336, -0.311585239965,
        -0.106652535149, 0.114918621209, 0.0391979748805, -0.158480025606, -0.321598536737,
        -0.365922321096, -0.428708052752, 0.231346680032, 0.251166057963, -0.27363625794,
        0.289933792315, 0.340542534679, 0.398269371089}},
      {"0.bias", {-2.22044604925e-16, 3.33066907388e-16}},
      {"1.weight", {1.93385936173, -0.321209946347}},
      {"1.bias", {0.884728254791, -0.306984686905}},
      {"5.weight", {-0.00669919618906,
                    0,
                    0.0294138481518,
                    0.0047855521194,
                    0,
                    -0.00814517543347,
                    0,
                    -0.0223450537366,
                    0.00660472988412,
                    0,
                    0.62368225445,
                    0.895070814132,
                    0,
                    0.00803031917242,
                    0,
                    0.0597581981729,
                    9.44663049393e-05,
                    0,
                    -0.653096102602,
                    -0.899856366252,
                    0,
                    0.000114856261045,
                    0,
                    -0.0374131444363}},
      {"5.bias", {0.0191353974207, 0.47407213976, -0.49320753718}},
  };
  for (const auto& [name, want] : grads) expect_near(got(std::string(name) + ".grad"), want, name);
}

TEST(TorchNet, ComesBackFromAModelFile) {
  const TorchNet saved(Mode::infer);
  Model loaded(saved.model().layers(), {4, 5}, DType::fp64);
  loaded.initialise(7);
  *saved.model().params()[6].value.view().as<int64_t>() = 41;
  const auto counted =
      to_safetensors(model_tensors(saved.model()), model_metadata(saved.model(), ""));
  EXPECT_TRUE(load_weights(TensorFile::parse(counted, "m"), loaded).empty());
  EXPECT_EQ(*loaded.params()[6].value.view().as<int64_t>(), 41);
  for (size_t i = 0; i < loaded.params().size(); ++i) {
    const Tensor &a = saved.model().params()[i].value.view(), &b = loaded.params()[i].value.view();
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << loaded.params()[i].name;
  }
}

}  // namespace
}  // namespace ridgeline::nn
