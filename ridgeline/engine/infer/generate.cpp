#include "ridgeline/engine/infer/generate.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/core/philox.h"
#include "ridgeline/data/character_text.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/one_step_model.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {
namespace {

// Returns the model for sequences of one character.
nn::Model one_character_model(const LoadedModel& loaded) {
  nn::Model model = one_step_model(loaded);
  if (model.output().numel() == loaded.classes) return model;
  throw_error(ErrorKind::usage, "this model cannot be asked for one character at a time");
}

// A plan of one sample and one timestep that carries its recurrent state from call to call.
class CharacterStepper {
 public:
  explicit CharacterStepper(const LoadedModel& loaded)
      : machine_(loaded.config.run),
        model_(one_character_model(loaded)),
        lowered_(nn::lower(model_, options(loaded))),
        weights_(machine_.runtime(), model_, lowered_),
        code_(machine_.runtime(), 1),
        order_(machine_.runtime(), sizeof(int32_t)) {
    Externals shared;
    weights_.bind(lowered_, shared);
    const auto bind = [&](const Value& value, const DeviceBuffer& memory) {
      shared[value.id] = {memory.data(), value.dtype, value.shape, machine_.device()};
    };
    bind(lowered_.inputs, code_);
    bind(lowered_.order, order_);
    machine_.runtime().clear(order_.data(), order_.size());
    runner_ = std::make_unique<Runner>(machine_, lowered_, shared, std::vector<std::string>{},
                                       /*fixed_weights=*/true);
  }

  // Returns the probabilities of the character that follows this one and all before it.
  std::vector<double> after(uint8_t code) {
    machine_.runtime().upload(code_.data(), &code, 1);
    runner_->launch(0, 1);
    const Value& value = lowered_.outputs;
    if (value.dtype == DType::fp64) return runner_->read<double>(value);
    return dispatch_float(value.dtype, [&](auto zero) {
      std::vector<double> wide;
      for (const auto each : runner_->read<decltype(zero)>(value)) {
        wide.push_back(double(float(each)));
      }
      return wide;
    });
  }

 private:
  static nn::LowerOptions options(const LoadedModel& loaded) {
    nn::LowerOptions options = lower_options(loaded.config, loaded.scaling, loaded.classes);
    options.mode = nn::Mode::infer;
    options.carry_state = true;
    options.loss = {};  // the model's outputs are always turned into probabilities
    return options;
  }

  Machine machine_;
  nn::Model model_;
  nn::Lowered lowered_;
  Weights weights_;
  DeviceBuffer code_, order_;
  std::unique_ptr<Runner> runner_;
};

int draw(std::vector<double> p, double temperature, double uniform) {
  const auto likeliest = std::ranges::max_element(p);
  if (temperature == 0 || !std::isfinite(*likeliest)) return int(likeliest - p.begin());
  const double top = std::log(*likeliest);
  double sum = 0;
  for (double& each : p) sum += each = std::exp((std::log(each) - top) / temperature);
  double left = uniform * sum;
  for (size_t i = 0; i < p.size(); ++i) {
    left -= p[i];
    if (left < 0) return int(i);
  }
  return int(likeliest - p.begin());
}

std::vector<uint8_t> encode_prompt(const data::Alphabet& alphabet, const std::string& prompt) {
  if (prompt.empty()) return {uint8_t(std::max(0, alphabet.code('\n')))};
  try {
    return alphabet.encode(prompt, "--prompt");
  } catch (const Error& error) {
    throw_error(ErrorKind::usage, "{}", error.what());
  }
}

}  // namespace

GenerateReport generate(const std::filesystem::path& file, const GenerateOptions& options) {
  const LoadedModel loaded = load_model(file, options.model);
  if (loaded.symbols.empty()) {
    throw_error(ErrorKind::usage,
                "{}: --generate wants a language model, and this one was not trained on a text",
                file.string());
  }
  const data::Alphabet alphabet(loaded.symbols);
  const std::vector<uint8_t> prompt = encode_prompt(alphabet, options.prompt);
  CharacterStepper speaker(loaded);
  GenerateReport report{options.prompt, 0, loaded.warnings};
  const Clock clock;
  std::vector<double> p;
  for (const uint8_t code : prompt) p = speaker.after(code);
  const Philox random{options.seed, streams::kSample};
  for (int64_t i = 0; i < options.characters; ++i) {
    const int code = draw(p, options.temperature, random.uniform(uint64_t(i)));
    report.text += alphabet.symbol(code);
    if (i + 1 < options.characters) p = speaker.after(uint8_t(code));
  }
  report.seconds = clock.seconds();
  return report;
}

}  // namespace ridgeline::engine
