#include "ridgeline/engine/user_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ridgeline/engine/stream/result_text.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

Config config_of(const std::string& data) {
  return parse_config("[data]\n" + data + "\n[model]\nlayers = [{ type = \"linear\", out = 1 }]\n",
                      "own.toml");
}

template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
  return path.string();
}

// Numbers 0 to 99 with their halves and the words "even" and "odd".
std::string write_table(const TempFolder& folder) {
  std::string text = "x,half,word\n";
  for (int i = 0; i < 100; ++i)
    text += fmt::format("{},{},{}\n", i, i / 2.0, i % 2 ? "odd" : "even");
  return write(folder / "t.csv", text);
}

TEST(UserDataConfig, ReadsBackToItself) {
  const Config config = config_of(R"(train = "a.csv"
test = "b.csv"
target = ["price", "rent"]
features = ["area", "kind"]
target_kind = "values"
target_scale = "min-max"
scale = "none"
missing = "indicator"
unseen = "missing"
columns = [{ name = "area", log = true, clip = { min = 0, max = 9.5 }, missing = "mean" },
           { name = "zip", category = true, scale = "standard" }]
window = { length = 5, horizon = 2 }
split = { validation = 0.2, seed = 7, stratify = false }
header = "yes"
separator = "tab"
channels = "rgb")");
  ASSERT_TRUE(config.data.user);
  const UserDataConfig& own = *config.data.user;
  EXPECT_EQ(own.scale, data::ScaleKind::raw);
  EXPECT_EQ(own.target_scale, data::ScaleKind::unit);
  EXPECT_EQ(own.windows, (data::WindowRule{5, 2, 1}));
  EXPECT_EQ(own.source_options().table.separator, '\t');
  EXPECT_FALSE(config.train.loss_named);
  const std::string text = to_toml(config);
  const Config again = parse_config(text, "again.toml");
  EXPECT_EQ(*again.data.user, own);
  EXPECT_EQ(to_toml(again), text);
  EXPECT_THAT(message_of([] { config_of("train = \"a\"\nsplitt = {}"); }), HasSubstr("split"));
  EXPECT_THAT(message_of([] { config_of("train = \"a\"\ntest = \"b\"\nsplit = {test = 0.1}"); }),
              HasSubstr("data.test"));
}

// Features that are made from codes when they are needed are those that are prepared in advance.
TEST(UserData, CategoriesStayCodesUntilTheyAreNeeded) {
  const TempFolder folder;
  std::string text = "x,kind,size,word\n";
  for (int i = 0; i < 100; ++i) {
    text += fmt::format("{},{},{},{}\n", i, i % 7 == 0 ? "" : fmt::format("k{}", i % 5),
                        i % 3 ? "big" : "small", i % 2 ? "odd" : "even");
  }
  const std::string file = write(folder / "t.csv", text);
  for (const char* missing : {"mean", "indicator"}) {
    Config config = config_of(
        fmt::format("train = \"{}\"\ntarget = \"word\"\nmissing = \"{}\"", file, missing));
    const data::DataSet whole = load_user_data(config, nullptr, true);
    config.data.resident = false;
    const data::DataSet coded = load_user_data(config, nullptr, true);
    ASSERT_FALSE(whole.train.source);
    ASSERT_TRUE(coded.train.source);
    ASSERT_EQ(coded.train.size(), 90);
    const auto want = whole.train.inputs.span<const float>();
    const size_t width = want.size() / 90;
    std::vector<int32_t> order;
    for (int32_t i = 0; i < 90; ++i) order.push_back((i * 37) % 90);
    std::vector<float> got(want.size());
    coded.train.source->gather(order, std::as_writable_bytes(std::span(got)));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], want[size_t(order[i / width]) * width + i % width]) << i;
    }
  }
}

TEST(UserData, ValuesAndClassesOfATable) {
  const TempFolder folder;
  const std::string path = write_table(folder);
  const Config values = config_of(fmt::format("train = \"{}\"\ntarget = \"half\"", path));
  const data::DataSet set = load_user_data(values);
  EXPECT_EQ(set.train.size(), 90);
  EXPECT_EQ(set.test.size(), 10);
  EXPECT_FALSE(set.validation);
  EXPECT_EQ(set.train.sample_shape(), Shape{3});  // x, and one of two words
  EXPECT_EQ(set.train.targets.view().shape, (Shape{90, 1}));
  EXPECT_EQ(settled(values, set).train.loss, nn::Loss{nn::LossKind::mse});
  double sum = 0;
  for (int64_t i = 0; i < 90; ++i) sum += set.train.inputs.span<float>()[size_t(3 * i)];
  EXPECT_NEAR(sum, 0, 1e-4);
  // The x and the target of a sample belong to the same row: both are standardised alike.
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(set.test.inputs.span<float>()[size_t(3 * i)],
                set.test.targets.span<float>()[size_t(i)], 1e-5);
  }
  const data::DataSet again = load_user_data(values, set.preparation.get());
  EXPECT_EQ(again.test.hash, set.test.hash);
  EXPECT_EQ(again.train.hash, set.train.hash);

  const Config classes =
      config_of(fmt::format("train = \"{}\"\nsplit = {{ validation = 0.2, test = 0.3 }}", path));
  const data::DataSet words = load_user_data(classes);
  EXPECT_EQ(words.train.classes, 2);
  EXPECT_THAT(words.preparation->target()->classes, ElementsAre("even", "odd"));
  EXPECT_EQ(settled(classes, words).train.loss, nn::Loss{});
  ASSERT_TRUE(words.validation);
  for (const data::SampleSet* part : {&words.train, &*words.validation, &words.test}) {
    int64_t odd = 0;
    for (const int32_t label : part->targets.span<int32_t>()) odd += label;
    EXPECT_EQ(2 * odd, part->size()) << part->name;  // stratified
  }
}

TEST(UserData, WindowsShareNoTimestepBetweenParts) {
  const TempFolder folder;
  const std::string path = write_table(folder);
  const Config config =
      config_of(fmt::format("train = \"{}\"\nfeatures = [\"x\"]\ntarget = \"x\"\ntarget_scale = "
                            "\"none\"\nscale = \"none\"\n"
                            "window = {{ length = 4, horizon = 2 }}\nsplit = {{ test = 0.3 }}",
                            path));
  const data::DataSet set = load_user_data(config);
  EXPECT_EQ(set.train.sample_shape(), (Shape{4, 1}));
  EXPECT_EQ(set.train.size(), 70 - 5);
  EXPECT_EQ(set.test.size(), 30 - 5);
  const auto x = set.test.inputs.span<float>();
  EXPECT_THAT(x.subspan(0, 4), ElementsAre(70, 71, 72, 73));
  EXPECT_EQ(set.test.targets.span<float>()[0], 75);
  EXPECT_EQ(set.train.targets.span<float>()[64], 69);
  // Inference needs no timestep after the window.
  const data::FieldSet fields = open_prepared(path, *set.preparation, config);
  EXPECT_EQ(prepared_samples(fields, *set.preparation), 97);
  std::vector<uint8_t> bytes;
  append_inputs(fields, *set.preparation, 96, 97, bytes);
  ASSERT_EQ(bytes.size(), 16u);
  EXPECT_EQ(reinterpret_cast<const float*>(bytes.data())[3], 99);
}

TEST(ResultText, NamesClassesAndRestoresValues) {
  WriterOptions options;
  options.outputs = 2;
  options.class_names = {"a,b", "c"};
  const ChunkResult result{0, 7, 1, {0}, {0.75, 0.25}, {}, {}};
  const auto text = [&] {
    const ResultText format(options);
    std::string all = format.header();
    format.append(result, all);
    return all;
  };
  EXPECT_EQ(text(), "index,label,\"p_a,b\",p_c\n7,\"a,b\",0.75,0.25\n");
  EXPECT_TRUE(is_infer_output(text()));
  options.format = InferFormat::json;
  EXPECT_EQ(text(), "{\"index\":7,\"label\":\"a,b\",\"p\":[0.75,0.25]}\n");
  data::Target target;
  target.fields = {"price", "rent"};
  target.shape = {2};
  target.shift = {1, 0};
  target.scale = {0.5, 1};
  options.target = &target;
  options.class_names = {};
  options.kind = OutputKind::values;
  EXPECT_EQ(text(), "{\"index\":7,\"values\":[2.5,0.25]}\n");
  options.format = InferFormat::csv;
  EXPECT_EQ(text(), "index,value_price,value_rent\n7,2.5,0.25\n");
  options.format = InferFormat::npy;
  EXPECT_EQ(text().size(), 128u + 16u);
  EXPECT_TRUE(is_infer_output(text()));
  EXPECT_FALSE(is_infer_output(std::string("\x93NUMPY\x01\0v\0{'descr': '<f8'", 25)));
  EXPECT_THAT(ResultText(options).npy_header(123), HasSubstr(" 123, 2), 'fortran_order': False"));
}

}  // namespace
}  // namespace ridgeline::engine
