#include "ridgeline/engine/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "ridgeline/core/philox.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::engine {
namespace {

const std::string kFile = R"([data]
name  = "fashion-mnist"
scale = "standard"
[model]
layers = [
  { type = "linear", out = 512, init = { type = "he" } },
  { type = "relu" },
  { type = "linear", out = 10 },
]
[train]
batch = 64
optimizer = { type = "adam", lr = 1e-3 }
schedule  = { type = "cosine", min_factor = 0.1 }
[run]
device = "cpu"
)";

const std::string kLayers = "[data]\nname = \"x\"\n[model]\nlayers = [{ type = \"relu\" }]\n";

Config parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return parse_config(text, "net.toml", sets);
}

TEST(Config, ReadsWhatIsThereAndDefaultsTheRest) {
  const Config config = parse(kFile);
  EXPECT_EQ(config.data.name, "fashion-mnist");
  EXPECT_EQ(config.data.scale, data::ScaleKind::standard);
  ASSERT_EQ(config.layers.size(), 3u);
  EXPECT_EQ(config.layers[1]->type(), "relu");
  EXPECT_EQ(config.train.batch, 64);
  EXPECT_EQ(config.train.epochs, 1);
  EXPECT_EQ(config.train.optimizer.kind, nn::OptimizerKind::adam);
  EXPECT_EQ(config.train.schedule.min_factor, 0.1);
  EXPECT_EQ(config.run.device, "cpu");
  EXPECT_EQ(config.run.precision, Precision::fp32);
  const nn::Model model = config.build_model({28, 28});
  EXPECT_EQ(model.parameter_count(), 784 * 512 + 512 + 512 * 10 + 10);
  EXPECT_EQ(config.build_model({28, 28}, Precision::fp64).params()[0].value.view().dtype,
            DType::fp64);
}

TEST(Config, ArrayOfTablesReadsTheSame) {
  const std::string text =
      "[data]\nname = \"x\"\n[[model.layers]]\ntype = \"linear\"\nout = 3\n[[model.layers]]\ntype "
      "= \"tanh\"\n";
  EXPECT_EQ(
      to_toml(parse(text)),
      to_toml(parse("[data]\nname = \"x\"\n[model]\nlayers = [{ type = \"linear\", out = 3 }, "
                    "{ type = \"tanh\" }]\n")));
}

TEST(Config, SetsOverrideInOrder) {
  const Config config =
      parse(kFile,
            {"train.optimizer.lr=0.01", "model.layers.0.out=2048", "train.batch=1", "train.batch=7",
             "data.name=some/folder-1", "run.device=cuda:1", "run.precision=\"fp64\"",
             "model.layers.1={ type = \"dropout\", p = 0.25 }", "train.shuffle=false"});
  EXPECT_EQ(parse(kFile, {"train.batch = 9"}).train.batch, 9);
  EXPECT_EQ(parse(kFile, {" data.name =\tsome/folder "}).data.name, "some/folder");
  EXPECT_EQ(config.train.optimizer.lr, 0.01);
  EXPECT_EQ(config.build_model({4}).params()[0].value.view().shape, (Shape{2048, 4}));
  EXPECT_EQ(config.train.batch, 7);
  EXPECT_EQ(config.data.name, "some/folder-1");
  EXPECT_EQ(config.run.device, "cuda:1");
  EXPECT_EQ(config.run.precision, Precision::fp64);
  EXPECT_EQ(config.layers[1]->to_toml(), "{ type = \"dropout\", p = 0.25 }");
  EXPECT_FALSE(config.train.shuffle);
  // Sections that the file does not have.
  EXPECT_EQ(parse(kLayers, {"train.optimizer.momentum=0.5"}).train.optimizer.momentum, 0.5);
  // A text is the type of the table.
  const nn::Optimizer adam = parse(kLayers, {"train.optimizer=adam"}).train.optimizer;
  EXPECT_EQ(adam, parse(kLayers, {"train.optimizer={ type = \"adam\" }"}).train.optimizer);
  EXPECT_EQ(adam.lr, 0.001);
  const Config changed = parse(kLayers, {"train.optimizer=adamw", "train.optimizer.lr=0.5"});
  EXPECT_EQ(changed.train.optimizer.kind, nn::OptimizerKind::adamw);
  EXPECT_EQ(changed.train.optimizer.lr, 0.5);
}

TEST(Config, RoundTripsOnceResolved) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {},
           {"data.name=\"a \\\"b\\\" \\\\ \\t c\""},
           {"train.clip_norm=0.1", "train.seed=9223372036854775807", "train.loss=mse"},
           {"train.schedule={ type = \"step\", every_steps = 3, factor = 0.7, warmup_steps = 9 }"},
           {"train.optimizer={ type = \"sgd\", lr = 1e-300, momentum = 0.99999999999999989 }"},
           {"run.deterministic=true", "run.tune=false", "run.threads=3",
            "train.checkpoint_seconds=0"}}) {
    const std::string once = to_toml(parse(kFile, sets));
    EXPECT_EQ(to_toml(parse(once)), once);
  }
}

TEST(Config, AnyLearningRateRoundTrips) {
  const Philox random{3, streams::kSample};
  Config config = parse(kFile);
  for (uint64_t i = 0; i < 300; ++i) {
    config.train.optimizer.lr = std::exp(20 * random.normal(i));
    EXPECT_EQ(parse(to_toml(config)).train.optimizer.lr, config.train.optimizer.lr);
  }
}

struct Fault {
  std::string text;
  std::vector<std::string> sets;
  std::vector<const char*> parts;
};

TEST(Config, NamesEachFaultAndItsPlace) {
  const auto train = [](const char* line) { return kLayers + "[train]\n" + line + "\n"; };
  const std::vector<Fault> faults{
      {"[data\n", {}, {"net.toml:1:"}},
      {"a = 1\na = 2\n", {}, {"net.toml:2:"}},
      {"x = \"\xff\"", {}, {"net.toml:1:"}},
      {std::string(1000, '['), {}, {"net.toml:1:"}},
      {"[data]\nname = \"x\"\n[modle]\n",
       {},
       {"net.toml:3:", "unknown key 'modle'", "did you mean 'model'"}},
      {"", {}, {"net.toml", "data.name", "missing"}},
      {"[data]\nname = \"\"\n", {}, {"net.toml:2:8", "empty"}},
      {"[data]\nname = 3\n", {}, {"net.toml:2:8", "data.name", "must be a text, is 3"}},
      {"[data]\nname = \"x\"\nscale = \"units\"\n",
       {},
       {"net.toml:3:9", "'units'", "did you mean 'unit'"}},
      {"[data]\nname = \"x\"\n", {}, {"model.layers", "missing", "at least one layer"}},
      {"[data]\nname = \"x\"\n[model]\nlayers = []\n", {}, {"net.toml:4:10", "at least one layer"}},
      {"[data]\nname = \"x\"\n[model]\nlayers = 3\n", {}, {"array of tables, is 3"}},
      {"[data]\nname = \"x\"\n[model]\nlayers = [1]\n",
       {},
       {"net.toml:4:11", "model.layers.0", "table, is 1"}},
      {"data = 1\n", {}, {"net.toml:1:8", "data", "must be a table, is 1"}},
      {train("bach = 3"),
       {},
       {"net.toml:6:1", "unknown key 'bach' in train", "did you mean 'batch'"}},
      {train("zzzzzzzz = 3"), {}, {"unknown key 'zzzzzzzz'", "known: batch, epochs"}},
      {train("batch = 0"), {}, {"net.toml:6:9", "train.batch", "at least 1", "is 0"}},
      {train("batch = 1.5"), {}, {"whole number, is 1.5"}},
      {train("batch = 99999999999"), {}, {"at most 2147483647"}},
      {train("epochs = -1"), {}, {"train.epochs", "at least 0"}},
      {train("seed = -1"), {}, {"train.seed", "at least 0"}},
      {train("shuffle = 1"), {}, {"true or false, is 1"}},
      {train("loss = \"crossentropy\""), {}, {"did you mean 'cross-entropy'"}},
      {train("clip_norm = -1.0"), {}, {"train.clip_norm", "at least 0"}},
      {train("clip_norm = nan"), {}, {"finite", "nan"}},
      {train("optimizer = { type = \"adam\", lr = nan }"),
       {},
       {"net.toml:6:", "train.optimizer.lr", "finite"}},
      {train("optimizer = { type = \"adam\", lr = 1e400 }"), {}, {"net.toml:6:"}},
      {train("schedule = \"cosine\""), {}, {"must be a table, is the text 'cosine'"}},
      {train("optimizer = \"adamm\""), {}, {"train.optimizer", "did you mean 'adam'"}},
      {train("optimizer = 3"), {}, {"train.optimizer", "must be a table"}},
      {train("eval_every = 0"), {}, {"at least 1"}},
      {train("log_steps = 0"), {}, {"at least 1"}},
      {train("schedule = { type = \"cosine\", steps = 9, warmup_steps = 9 }"),
       {},
       {"net.toml:6:", "train.schedule.steps", "9 is not more than the 9 of warmup_steps"}},
      {kLayers + "[run]\ndevice = \"gpu\"\n", {}, {"net.toml:6:10", "'gpu'", "cuda"}},
      {kLayers + "[run]\nprecision = \"f32\"\n", {}, {"'f32'", "did you mean 'fp32'"}},
      {kLayers + "[run]\nthreads = -2\n", {}, {"run.threads", "at least 0"}},
      {kFile, {"train.batch=0"}, {"--set train.batch=0", "train.batch", "at least 1"}},
      {kFile, {"train.bach=4"}, {"--set train.bach=4", "unknown key 'bach'", "'batch'"}},
      {kFile, {"trian.batch=4"}, {"--set trian.batch=4", "unknown key 'trian'", "'train'"}},
      {kFile, {"train.optimizer.lr=1e400"}, {"--set train.optimizer.lr=1e400", "no TOML value"}},
      {kFile, {"train.batch"}, {"--set train.batch", "no '='"}},
      {kFile, {"train.batch="}, {"give one value"}},
      {kFile, {"train.batch = "}, {"give one value"}},
      {kFile, {"train.batch=1\nseed=2"}, {"on one line"}},
      {kFile, {"train..batch=1"}, {"empty part"}},
      {kFile, {"=1"}, {"empty part"}},
      {kFile, {"train.batch=[1"}, {"--set train.batch=[1", "no TOML value"}},
      {kFile, {"model.layers.3.out=1"}, {"'3' is no index of an array of 3"}},
      {kFile, {"model.layers.x.out=1"}, {"'x' is no index"}},
      {kFile, {"train.batch.size=1"}, {"what holds 'size'"}},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.text.substr(0, 200) + (fault.sets.empty() ? "" : " --set " + fault.sets[0]));
    if (!fault.sets.empty() && fault.sets[0].find('\n') != std::string::npos) {
      EXPECT_THROW(parse(fault.text, fault.sets), Error);
      continue;
    }
    test::expect_error(ErrorKind::usage, fault.parts, [&] { parse(fault.text, fault.sets); });
  }
}

// The result is success or Error(usage), never anything else.
TEST(Config, SurvivesAnyChangedByte) {
  for (size_t at = 0; at < kFile.size(); ++at) {
    for (const char c : {'\0', '"', '[', '{', '=', '\n', '9', '\x80'}) {
      std::string text = kFile;
      text[at] = c;
      try {
        parse(text);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      }
    }
    try {
      parse(kFile.substr(0, at));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    }
  }
}

TEST(Config, EveryShippedFileIsGoodAndFitsItsData) {
  int files = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(RIDGELINE_SOURCE_DIR "/configs")) {
    if (file.path().extension() != ".toml") continue;
    const Config config = load_config(file.path());
    const bool text = config.data.name == "tinyshakespeare";  // 65 characters at each step
    const bool records = config.data.text.has_value();
    const Shape sample = text      ? Shape{config.data.steps}
                         : records ? Shape{config.data.text->coding.length}
                                   : Shape{28, 28};
    const Shape outputs = text               ? Shape{config.data.steps, 65}
                          : records          ? Shape{4}
                          : config.data.user ? Shape{5}  // of both heads
                                             : Shape{10};
    EXPECT_EQ(config.build_model(sample).output(), outputs) << file.path();
    const std::string once = to_toml(config);
    EXPECT_EQ(to_toml(parse(once)), once) << file.path();
    ++files;
  }
  EXPECT_GE(files, 7);
}

TEST(Config, MissingFileIsNamed) {
  test::expect_error(ErrorKind::usage, {"no/such.toml", "No such file"},
                     [] { load_config("no/such.toml"); });
}

TEST(Config, TextsOfANamedSetNeedNoSettings) {
  const std::string layers =
      "[model]\nlayers = [{ type = \"onehot_conv1d\", symbols = 70, out = 8, "
      "kernel = 7 }]\n";
  const Config config = parse("[data]\nname = \"ag-news\"\n" + layers);
  ASSERT_TRUE(config.data.text);
  EXPECT_EQ(config.data.text->columns.text, (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(config.data.text->columns.label, "1");
  EXPECT_EQ(config.data.text->coding.vocabulary.size(), 70);
  EXPECT_EQ(config.data.text->coding.length, 1014);
  EXPECT_TRUE(config.data.text->coding.backward);
  EXPECT_EQ(config.data.text->coding.class_names.at(3), "Sci/Tech");
  EXPECT_EQ(config.data.text->coding.first_label, 1);
  const Config again = parse(to_toml(config));
  EXPECT_EQ(to_toml(again), to_toml(config));
  EXPECT_EQ(again.data.text->coding.vocabulary.symbols(), data::Vocabulary::paper());
  EXPECT_EQ(config.build_model({1014}).output(), (Shape{8, 1008}));
}

TEST(Config, TextsOfAFolderSayWhereTheyAre) {
  const std::string start = "[data]\nname = \"news\"\n", rest = kLayers.substr(kLayers.find("[m"));
  const Config config =
      parse(start +
            "text = { columns = \"body\", label = \"topic\", vocabulary = \"ab\\n\", length = "
            "9, backward = false, classes = [\"x\", \"y\"] }\n" +
            rest);
  EXPECT_EQ(config.data.text->columns.text, (std::vector<std::string>{"body"}));
  EXPECT_EQ(config.data.text->coding.vocabulary.symbols(), "ab\n");
  EXPECT_EQ(config.data.text->coding.class_names.size(), 2u);
  EXPECT_EQ(to_toml(parse(to_toml(config))), to_toml(config));
  const auto refuse = [&](const std::string& text, const std::vector<const char*>& parts) {
    test::expect_error(ErrorKind::usage, parts, [&] { parse(start + text + "\n" + rest); });
  };
  refuse("text = { label = \"1\" }", {"data.text.columns", "missing"});
  refuse("text = { columns = \"1\" }", {"data.text.label", "missing"});
  refuse("text = { columns = [1], label = \"1\" }", {"data.text.columns", "must hold texts"});
  refuse("text = { columns = \"1\", label = \"2\", vocabulary = \"\" }",
         {"vocabulary", "1 to 254"});
  refuse("text = { columns = \"1\", label = \"2\", lenght = 5 }", {"lenght", "length"});
}

// Inputs on which a recursive parser would exhaust the stack: dotted keys, tables and arrays.
TEST(Config, DeepTextsAreRefused) {
  const auto repeated = [](const std::string& part, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  const auto refused = [](const std::string& text, const char* what, const char* place) {
    test::expect_error(ErrorKind::usage, {place, what}, [&] { parse(text); });
  };
  for (const size_t count : {size_t{17}, size_t{300'000}}) {
    const std::string key = repeated("a.", count) + "b";
    refused("\n" + key + " = 1\n", "a key of too many parts; the most is 16", "net.toml:2:");
    refused("[" + key + "]\n", "too many parts", "net.toml:1:");
    refused("[[" + key + "]]\n", "too many parts", "net.toml:1:");
    refused("x = { " + key + " = 1 }", "too many parts", "net.toml:1:");
    refused(repeated("\"a\" . ", count) + "b = 1", "too many parts", "net.toml:1:");
    refused("x = " + repeated("[", count) + repeated("]", count), "too deep; the most is 16",
            "net.toml:1:");
    refused("x = " + repeated("[\n", count), "too deep", "net.toml:17:");
    refused("x = " + repeated("{ a = ", count) + "1" + repeated("}", count), "too deep",
            "net.toml:1:");
    test::expect_error(ErrorKind::usage, {"--set", "too many parts"},
                       [&] { parse(kFile, {key + "=1"}); });
    test::expect_error(ErrorKind::usage, {"--set", "too many parts"},
                       [&] { parse(kFile, {"data.x={" + key + "=1}"}); });
    test::expect_error(ErrorKind::usage, {"--set", "too deep"},
                       [&] { parse(kFile, {"data.x=" + repeated("[", count)}); });
  }
  refused(std::string(size_t{5} << 20, ' '), "5242880 bytes; a config has at most 4194304",
          "net.toml");
}

// Dots and brackets in strings and comments do not count.
TEST(Config, TextsMayHoldWhatLooksDeep) {
  const std::string dots = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t", open(40, '[');
  const auto name_of = [](const std::string& value) {
    return parse("# " + std::string(40, '{') + "\n" + kLayers + "[data.augment]\nshift = 0\n",
                 {"data.name=" + value})
        .data.name;
  };
  EXPECT_EQ(name_of("\"" + dots + "\""), dots);
  EXPECT_EQ(name_of(dots), dots);
  EXPECT_EQ(name_of("'" + open + "'"), open);
  EXPECT_EQ(name_of("\"\\\"" + open + "\""), "\"" + open);
  EXPECT_EQ(parse("[data]\nname = \"\"\"\\\n" + open +
                  "\"\"\"\n[model]\nlayers = [{ type = "
                  "\"relu\" }]\n")
                .data.name,
            open);
}

TEST(Config, TooManyLayersAreRefused) {
  const auto with = [](size_t count) {
    std::string text = "[data]\nname = \"x\"\n[model]\nlayers = [";
    for (size_t i = 0; i < count; ++i) text += "{ type = \"relu\" },\n";
    return text + "]\n";
  };
  EXPECT_EQ(parse(with(4096)).layers.size(), 4096u);
  test::expect_error(ErrorKind::usage, {"net.toml:4", "model.layers", "4097 layers; at most 4096"},
                     [&] { parse(with(4097)); });
}

}  // namespace
}  // namespace ridgeline::engine
