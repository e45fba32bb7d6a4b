// Recurrent layers lowered from a config: numbers from PyTorch 2.11 for the same weights, the names
// of weights, and carried state.
#include "ridgeline/nn/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/layers.h"
#include "tests/nn/expect_error.h"
#include "tests/support/oracle.h"

namespace ridgeline::nn {
namespace {

using test::Arrays;
using test::expect_error;

LayerPtr layer_of(const std::string& toml) {
  ConfigTable table = ConfigTable::parse(toml, "test.toml");
  return read_layer(table);
}

// 0.6 sin(0.7 i + phase)
void fill(const Tensor& tensor, double phase) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.as<double>()[i] = 0.6 * std::sin(0.7 * double(i) + phase);
  }
}

struct TorchCase {
  const char* cell;
  std::vector<double> y, dx;
  std::vector<double>
      sums;  // for each weight, its gradient's elements times 1, 2, 3, ..., added up
};

// torch.nn.RNN, GRU and LSTM of 3 features, 2 hidden units, 2 layers, both directions; 2 samples of
// 3 steps. Weight number k (from 1) is fill(k), the input fill(0.5); the loss is sum(fill(2.5) *
// y).
const TorchCase kTorch[] = {
    {"rnn_relu",
     {0, 1.69594328628859,  3.14998926065823, 0, 0, 0.495834471252612, 1.96282384711498, 0,
      0, 0.246409643058027, 1.21053661010647, 0, 0, 1.69294228431759,  3.14949859633687, 0,
      0, 0.495215004662323, 1.96701656046682, 0, 0, 0.25109839945243,  1.21266764278871, 0},
     {0.0174839178105829, -0.0681876432200423, -0.121789490182966, -0.0520369641134441,
      -0.12694829864775, -0.142153864706135, 0.0172100466456273, 0.00879088595447761,
      -0.00376276576244501, 0.119422546960171, -0.0150991430375531, -0.142519470134098,
      -0.0510398282237261, 0.029264828106696, 0.095805778502986, 0.066596193463267,
      -0.0712751282136554, -0.175624643387096},
     {0.405305686133122, 0, 0.129871449487025, 0.129871449487025, -3.58040927524467,
      -8.43228877625154, -2.871940088983, -2.871940088983, -16.4967002653874, 2.74791900717232,
      -0.853106248184377, -0.853106248184377, -9.18659897977993, -0.821738294840957,
      -0.710597640992219, -0.710597640992219}},
    {"rnn_tanh",
     {-0.923643426721037, 0.322019484776666, 0.407533348520712, -0.637662557312901,
      -0.941024438417038, 0.764636006600142, 0.466861599725033, -0.747211589105577,
      -0.952886674821757, 0.693242722112587, 0.372894581792964, -0.74837529686371,
      -0.923167058425957, 0.318940290992873, 0.406834670948576, -0.63573908789327,
      -0.941410124416281, 0.766655283941083, 0.46947055068555,  -0.749466716205134,
      -0.953227836678596, 0.695124133484111, 0.371623949946782, -0.748475045060893},
     {-0.0195141528020585, -0.024839897988551, -0.0184830510169153, 0.0309470656757202,
      0.0484277238583856, 0.0431320668063936, 0.0296537625242536, 0.0357211359846228,
      0.0249883010332775, 0.153428734366809, 0.134071003666075, 0.0516575850239663,
      -0.0746806889495036, -0.103703763084712, -0.0839533370251829, -0.0446519597774319,
      -0.0403681509270394, -0.0170985699259024},
     {0.13885675300712, -0.0240898532573509, -0.000201781074153751, -0.000201781074153751,
      -0.40747830689666, -0.316519457524082, -0.236676431112734, -0.236676431112734,
      -3.55361699194161, -0.296883017427189, -0.968108083443348, -0.968108083443348,
      -3.17473230488223, 0.339142693997672, -1.18582969982206, -1.18582969982206}},
    {"gru",
     {0.209652376862106, 0.197402157114981, -0.665931401442249, -0.0390836736222055,
      0.334578073561484, 0.307415345381768, -0.668161762209768, 0.0878050494813867,
      0.450672707534705, 0.312380771600052, -0.516110381512637, 0.153003907577969,
      0.209391922146833, 0.197435235798338, -0.665732109358398, -0.0392429641629042,
      0.334891338493427, 0.307192644057471, -0.669125785253615, 0.0894168089451546,
      0.450718203923712, 0.312671395767136, -0.516351007248334, 0.152733687264027},
     {0.0151241635286599, 0.0284085756798524, 0.0283319907925705, -0.0035863199275942,
      -0.001114602116128, 0.00188133048669168, 0.0130073638784159, 0.0298886521646684,
      0.0327128403148045, -0.013789543732998, -0.030074953954661, -0.0322156433973284,
      -0.00325676779961571, -0.00703854661829672, -0.0075099869820681, -0.00702844846940215,
      -0.0203489720762606, -0.0240990561541941},
     {-0.0625882938057419, -0.0449562396178283, -0.0302989213245879, -0.000988504638608521,
      -0.113948064526521, 0.0396321535188709, -0.0601313408825049, -0.0380654423777087,
      0.480474480535683, -0.110192312081615, -0.275450492117433, -0.0173884195007221,
      6.01065642542669, 0.569219397232299, -3.2098087785494, -1.43098298322763}},
    {"lstm",
     {0.115967914204979, 0.0932193433879642, -0.262816581143471, 0.0881758949901021,
      0.190579403036326, 0.128572189470981,  -0.260570545556325, 0.105279462464645,
      0.229993881210707, 0.144843748112001,  -0.215799929326736, 0.0986790327908224,
      0.115929340894962, 0.0932594369354544, -0.262807521117112, 0.0881093720898634,
      0.190655214532054, 0.128452769045915,  -0.260612527892985, 0.105369354072404,
      0.229944047279251, 0.144916526182916,  -0.2158196706259,   0.0987737052942703},
     {0.00300771803593937, 0.00955187800289533, 0.0116036404928787, 0.00130673439510993,
      0.00120251874569154, 0.000532739740300718, -0.000454589363757014, -3.48048005276423e-05,
      0.000401349004229883, -0.00249080833563441, -0.00886189597169328, -0.0110650954613205,
      -3.89646409384827e-05, 0.00136080392323132, 0.0021205651391576, 0.00312695956349908,
      -0.00065853695735543, -0.00413431325724189},
     {-0.12233113052994, -0.00242303412154525, 0.0314980464218277, 0.0314980464218277,
      -0.266745585686308, 0.00491981033597665, -0.0521715372846094, -0.0521715372846094,
      1.36289345316303, 0.0943563277504822, -0.279231639931916, -0.279231639931916,
      2.08791788917267, 0.0919413397672594, -1.0889073398083, -1.0889073398083}},
};

// One layer, forward and backward, as ops on fp64 arrays.
struct Lowering {
  Lowered lowered;
  LowerOptions options;
  LayerValues values;
  Value y, dy, dx;

  Lowering(const Layer& layer, const Shape& sample, int64_t batch, bool carry) {
    options.precision = Precision::fp64;
    options.batch = batch;
    options.carry_state = carry;
    Builder builder(lowered, options);
    values.input = sample;
    values.x = builder.temp("x", {batch, sample.numel()});
    for (const ParamSpec& spec : layer.params(sample)) {
      values.params.push_back(builder.temp(spec.suffix, spec.shape));
      values.grads.push_back(builder.temp(spec.suffix + ".grad", spec.shape));
    }
    y = layer.forward(builder, values);
    dy = builder.like("dy", y);
    dx = layer.backward(builder, values, dy, true);
  }
};

TEST(Recurrent, GivesPyTorchsOutputsAndGradients) {
  for (const TorchCase& c : kTorch) {
    SCOPED_TRACE(c.cell);
    const std::string cell = c.cell;
    const std::string kind = cell.starts_with("rnn")
                                 ? "type = \"rnn\"\nactivation = \"" + cell.substr(4) + "\""
                                 : "type = \"" + cell + "\"";
    const LayerPtr layer = layer_of(kind + "\nhidden = 2\nlayers = 2\nbidirectional = true");
    const Lowering l(*layer, {3, 3}, 2, false);
    Arrays arrays(l.lowered.program);
    fill(arrays[l.values.x], 0.5);
    fill(arrays[l.dy], 2.5);
    for (size_t i = 0; i < l.values.params.size(); ++i) {
      fill(arrays[l.values.params[i]], double(i + 1));
    }
    test::Reference().run(l.lowered.program, 0, l.lowered.program.ops.size(), arrays);
    for (size_t i = 0; i < c.y.size(); ++i) EXPECT_NEAR(arrays.doubles(l.y.id)[i], c.y[i], 1e-13);
    for (size_t i = 0; i < c.dx.size(); ++i) {
      EXPECT_NEAR(arrays.doubles(l.dx.id)[i], c.dx[i], 1e-12);
    }
    ASSERT_EQ(l.values.grads.size(), c.sums.size());
    for (size_t p = 0; p < c.sums.size(); ++p) {
      double sum = 0, place = 0;
      for (const double g : arrays.doubles(l.values.grads[p].id)) sum += ++place * g;
      EXPECT_NEAR(sum, c.sums[p], 1e-11) << p;
    }
  }
}

TEST(Recurrent, NamesItsWeightsAsPyTorchDoes) {
  const LayerPtr layer = layer_of("type = \"gru\"\nhidden = 4\nlayers = 2\nbidirectional = true");
  std::vector<std::string> names;
  for (const ParamSpec& spec : layer->params({9, 5})) names.push_back(spec.suffix);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
                "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_ih_l1",
                "weight_hh_l1", "bias_ih_l1", "bias_hh_l1", "weight_ih_l1_reverse",
                "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"}));
  EXPECT_EQ(layer->params({9, 5})[0].shape, (Shape{12, 5}));
  EXPECT_EQ(layer->params({9, 5})[8].shape, (Shape{12, 8}));  // both directions below
  EXPECT_EQ(layer->output({9, 5}), (Shape{9, 8}));
}

// Two batches of three timesteps with carried state equal one of six.
TEST(Recurrent, CarriesItsStateFromBatchToBatch) {
  for (const char* kind : {"rnn", "gru", "lstm"}) {
    SCOPED_TRACE(kind);
    const LayerPtr layer = layer_of("type = \"" + std::string(kind) + "\"\nhidden = 4\nlayers = 2");
    const Lowering whole(*layer, {6, 2}, 2, false), half(*layer, {3, 2}, 2, true);
    Arrays all(whole.lowered.program), part(half.lowered.program);
    fill(all[whole.values.x], 0.5);
    for (size_t i = 0; i < whole.values.params.size(); ++i) {
      fill(all[whole.values.params[i]], double(i + 1));
      fill(part[half.values.params[i]], double(i + 1));
    }
    for (const Lowered::CarriedState& each : half.lowered.carried) {
      EXPECT_EQ(half.lowered.program.info(each.value.id).role, Role::state);
      std::fill_n(part[each.value].as<double>(), each.value.shape.numel(), 0.0);
    }
    EXPECT_EQ(half.lowered.carried.size(), std::string(kind) == "lstm" ? 4u : 2u);
    const size_t forward = 2;  // one op a layer of the stack
    test::Reference reference;
    reference.run(whole.lowered.program, 0, forward, all);
    for (int64_t chunk = 0; chunk < 2; ++chunk) {
      for (int64_t b = 0; b < 2; ++b) {
        std::copy_n(all[whole.values.x].as<double>() + b * 12 + chunk * 6, 6,
                    part[half.values.x].as<double>() + b * 6);
      }
      reference.run(half.lowered.program, 0, forward, part);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < 12; ++i) {
          EXPECT_NEAR(part[half.y].as<double>()[b * 12 + i],
                      all[whole.y].as<double>()[b * 24 + chunk * 12 + i], 1e-14);
        }
      }
      for (const Lowered::CarriedState& each : half.lowered.carried) {
        std::copy_n(part[each.next].as<double>(), each.value.shape.numel(),
                    part[each.value].as<double>());
      }
    }
  }
}

TEST(Recurrent, SaysWhatItWants) {
  const LayerPtr layer = layer_of("type = \"lstm\"\nhidden = 4\nbidirectional = true");
  expect_error(ErrorKind::usage, {"wants a sequence [steps, features]"},
               [&] { (void)layer->output({12}); });
  expect_error(ErrorKind::usage, {"one direction only"}, [&] {
    (void)Lowering(*layer, {3, 2}, 2, true);
  });
  expect_error(ErrorKind::usage, {"hidden"}, [] { (void)layer_of("type = \"gru\""); });
  expect_error(ErrorKind::usage, {"dropout", "between layers"},
               [] { (void)layer_of("type = \"gru\"\nhidden = 3\ndropout = 0.5"); });
}

TEST(Recurrent, WritesItselfAsItIsRead) {
  for (const char* toml :
       {"type = \"gru\"\nhidden = 3\nlayers = 2\ndropout = 0.25\nbias = false",
        "type = \"rnn\"\nhidden = 3\nactivation = \"relu\"\nbidirectional = true",
        "type = \"embedding\"\nvocabulary = 5\nout = 2", "type = \"select\"\nat = 2",
        "type = \"linear\"\nout = 4\nper_step = true"}) {
    const std::string written = layer_of(toml)->to_toml();
    ConfigTable root = ConfigTable::parse("layer = " + written, "test.toml");
    ConfigTable table = root.table("layer");
    EXPECT_EQ(read_layer(table)->to_toml(), written);
  }
}

// A step of a language model: codes in, one target per timestep, and the state copied at the end.
TEST(Recurrent, LowersALanguageModel) {
  const Model model({layer_of("type = \"embedding\"\nvocabulary = 5\nout = 3"),
                     layer_of("type = \"lstm\"\nhidden = 4"),
                     layer_of("type = \"linear\"\nout = 5\nper_step = true")},
                    {7});
  EXPECT_EQ(model.output(), (Shape{7, 5}));
  LowerOptions options;
  options.batch = options.set_samples = options.order_samples = 2;
  options.targets = 7;
  options.classes = 5;
  options.carry_state = true;
  const Lowered lowered = lower(model, options);
  const auto& ops = lowered.program.ops;
  EXPECT_EQ(std::get<Gather>(ops[0]).y.dtype, DType::int32);
  EXPECT_EQ(std::get<Gather>(ops[1]).y.shape, (Shape{2, 7}));
  const auto& loss = std::get<SoftmaxXent>(ops[5]);
  EXPECT_EQ(loss.x.shape, (Shape{14, 5}));
  EXPECT_EQ(loss.label.shape, (Shape{14}));
  EXPECT_DOUBLE_EQ(loss.scale, 1.0 / 14);
  EXPECT_TRUE(std::holds_alternative<Tick>(ops.back()));
  EXPECT_TRUE(std::holds_alternative<Copy>(ops[ops.size() - 2]));
  EXPECT_TRUE(std::holds_alternative<Copy>(ops[ops.size() - 3]));
  ASSERT_EQ(lowered.carried.size(), 2u);
  EXPECT_EQ(lowered.carried[0].value.shape, (Shape{1, 2, 4}));
}

}  // namespace
}  // namespace ridgeline::nn
