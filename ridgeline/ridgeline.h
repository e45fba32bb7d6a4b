#pragma once

// Ridgeline's public interface: train small networks, keep them in files, predict. docs/library.md
// explains it with examples. Everything else under ridgeline/ is internal and may change.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ridgeline/custom_layer.h"
#include "ridgeline/error.h"

#define RIDGELINE_VERSION_MAJOR 0
#define RIDGELINE_VERSION_MINOR 2
#define RIDGELINE_VERSION_PATCH 0

namespace ridgeline {

std::string version();  // "0.2.0", of the library that is linked

// ---------------------------------------------------------------------------------------- arrays

enum class ArrayType { uint8, int32, int64, float32, float64 };

// A view of numbers in row-major order, [samples, ...]. It owns nothing: the memory must outlive
// the call that it is given to.
struct Array {
  const void* data = nullptr;
  ArrayType type = ArrayType::float32;
  std::vector<int64_t> shape;
  int gpu = -1;  // the GPU that has the memory; -1: host memory

  Array() = default;
  Array(std::span<const uint8_t> values, std::vector<int64_t> shape);
  Array(std::span<const int32_t> values, std::vector<int64_t> shape);
  Array(std::span<const int64_t> values, std::vector<int64_t> shape);
  Array(std::span<const float> values, std::vector<int64_t> shape);
  Array(std::span<const double> values, std::vector<int64_t> shape);
};

// Samples and what a model learns to say about them. Integer targets [samples] are classes; floats,
// [samples] or [samples, outputs], are values.
// `weights`, if it has numbers (float32 or float64, [samples]), says how much each sample counts.
// The loss of a training step is the mean of weight times loss; an evaluation's loss and scores are
// weighted means.
struct Samples {
  Array inputs;
  Array targets;
  Array weights{};
};

// Bytes of arrays that were copied since the start because they could not be used where they lay:
// samples that a preparation changes, or that a run needs on another device. What a call reads into
// its plan, batch by batch, is not counted.
int64_t copied_bytes();

// The place of a model's work on a GPU among that of other programs of this process. Streams are
// CUDA's own handles; 1 and 2 name its default streams. On a CPU everything is in order anyway.
class GpuQueue {
 public:
  int gpu() const;                    // -1 on a CPU
  void* stream() const;               // null on a CPU
  void wait_for(void* stream) const;  // our work from now on waits for theirs so far
  void let_wait(void* stream) const;  // their work from now on waits for ours so far
  void synchronize() const;           // returns when our work is done
  // Memory of the device, good while what gave this queue lives.
  void* allocate(size_t bytes) const;
  void release(void* memory) const noexcept;
  void download(void* host, const void* device, size_t bytes) const;  // waits for our work

 private:
  explicit GpuQueue(void* runtime) : runtime_(runtime) {}
  void* runtime_;
  friend struct QueueAccess;
};
// Returns when what was asked of a stream of a GPU is done.
void wait_for_stream(int gpu, void* stream);

// A weight by its name, which is PyTorch's for an nn.Sequential of the same layers: "0.weight".
struct NamedArray {
  std::string name;
  Array values;
};

// ---------------------------------------------------------------------------------------- config

// A value of a config: a number, a text, a truth value or a list of numbers.
using Setting = std::variant<bool, int64_t, double, std::string, std::vector<double>>;

// A named setting: {"out", 128}, {"lr", 0.01}, {"type", "adam"}.
struct NamedSetting {
  std::string name;
  Setting value;

  NamedSetting(std::string key, bool v) : name(std::move(key)), value(v) {}
  NamedSetting(std::string key, int v) : name(std::move(key)), value(int64_t{v}) {}
  NamedSetting(std::string key, int64_t v) : name(std::move(key)), value(v) {}
  NamedSetting(std::string key, double v) : name(std::move(key)), value(v) {}
  NamedSetting(std::string key, const char* v) : name(std::move(key)), value(std::string(v)) {}
  NamedSetting(std::string key, std::string v) : name(std::move(key)), value(std::move(v)) {}
  NamedSetting(std::string key, std::vector<double> v)
      : name(std::move(key)), value(std::move(v)) {}
};

// A network and how to train it: a TOML file of docs/config.md, or the same built in code.
class Config {
 public:
  Config() = default;                                     // built by add() and set()
  static Config load(const std::filesystem::path& file);  // throws usage with file and line
  static Config parse(std::string toml);

  // Adds a layer: add("linear", {{"out", 128}}).add("relu").
  Config& add(const std::string& layer, std::initializer_list<NamedSetting> settings = {});
  // Sets a key by its place in the file: set("train.epochs", 5), or "train.epochs=5".
  Config& set(const std::string& key, const Setting& value);
  Config& set(const std::string& key, const char* value) {
    return set(key, Setting(std::string(value)));
  }
  template <typename T>
  requires std::is_arithmetic_v<T> Config& set(const std::string& key, T value) {
    if constexpr (std::is_same_v<T, bool>) return set(key, Setting(value));
    if constexpr (std::is_integral_v<T>) return set(key, Setting(int64_t(value)));
    return set(key, Setting(double(value)));
  }
  Config& set(const std::string& assignment);

  std::string toml() const;  // what add() and set() have made of it; checked when it is used

 private:
  std::string text_, origin_;
  std::vector<std::string> layers_, sets_;
  friend struct ConfigAccess;
};

// ----------------------------------------------------------------------------------------- model

struct DeviceOptions {
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  int threads = 0;              // 0: all that this process may use
  bool tune = true;             // measure which kernels are fastest here; else a fixed order
  int64_t batch = 256;          // most samples of one call on the device; larger arrays go in parts
};

// How well a model does on some samples; what does not fit the targets is absent. The definitions
// of scores are scikit-learn's, and those of values are in the units of the targets.
struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy{}, top5{}, f1{}, auc{};  // of classes
  std::optional<double> mse{}, mae{}, r2{};               // of values
  int64_t samples = 0;
};

// A layer of a model, in running order.
struct LayerInfo {
  std::string path;                   // "3.0", the prefix of the names of its weights
  std::string type;                   // "linear", as in a config
  std::vector<int64_t> output_shape;  // of one sample
  int64_t parameters = 0;             // the numbers that are trained
};

// A network with the preparation of its inputs. Copies share one network. Calls of one Model from
// several threads follow one another; load it once a thread to compute at once.
class Model {
 public:
  // A network that has not been trained, for samples of this shape, which it takes as they are. Its
  // weights are drawn with train.seed. By train.loss it gives classes 0, 1, ... or values.
  static Model create(const Config& config, const std::vector<int64_t>& input_shape,
                      const DeviceOptions& options = {});
  // A model file, or the folder of a run. Throws model when it is neither.
  static Model load(const std::filesystem::path& path, const DeviceOptions& options = {});
  // Writes a .safetensors file that `ridgeline infer` and PyTorch's own library read.
  void save(const std::filesystem::path& file) const;
  // These keep the model's file in memory, and make the model from it again.
  std::vector<std::byte> to_bytes() const;
  static Model from_bytes(std::span<const std::byte> file, const DeviceOptions& options = {});

  // The network and how it was trained, as a TOML file of docs/config.md.
  std::string config() const;
  std::vector<int64_t> input_shape() const;  // of one sample, as predict() takes it
  int64_t outputs() const;                   // numbers for one sample
  std::vector<std::string> classes() const;  // names, by output; empty for a regressor
  std::vector<LayerInfo> layers() const;

  // [samples, outputs()]: probabilities of a classifier, values of a regressor in the units of its
  // targets.
  std::vector<float> predict(const Array& samples);
  // Writes the same to memory of the caller, which holds samples x outputs().
  void predict(const Array& samples, std::span<float> out);
  // Predicts where samples, answers or both lie on the GPU that the model computes on: `out` is
  // memory of `gpu` (-1: of the host). Answers on a GPU may still be under way when it returns.
  void predict(const Array& samples, float* out, int gpu);
  GpuQueue queue();
  // The most probable class of each sample, as a number of classes().
  std::vector<int32_t> predict_classes(const Array& samples);
  void predict_classes(const Array& samples, std::span<int32_t> out);
  // Throws usage for a model of a named set, whose samples are no arrays. `between_batches` is
  // called now and then on this thread; what it throws ends the evaluation.
  Evaluation evaluate(const Samples& samples, const std::function<void()>& between_batches = {});

  // Reads an ONNX file as a model. `input_shape` is needed where the file leaves it open; `classes`
  // says that its outputs are logits of classes. Throws model for what our layers do not express.
  static Model from_onnx(const std::filesystem::path& file,
                         const std::vector<int64_t>& input_shape = {}, bool classes = false,
                         const DeviceOptions& options = {});
  // The bytes of an ONNX file; `warnings` gets a line for each thing that it does not do.
  std::string to_onnx(int64_t opset = 17, bool half_weights = false,
                      std::vector<std::string>* warnings = nullptr) const;

  // Forgets the plans made so far: call it after writing to the memory of weights().
  void weights_changed();

  // Views of the weights in the order of the layers. The memory stays the same for as long as the
  // model lives, whatever weights it is given.
  std::vector<NamedArray> weights() const;
  // Replaces all of them, converting between types of floats. Throws usage that lists every
  // missing, unknown and misshaped one; the model is then as it was.
  void set_weights(const std::vector<NamedArray>& weights);

  struct State;  // internal

 private:
  explicit Model(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
  friend struct ModelAccess;
};

struct PredictorOptions {
  int64_t batch = 1;            // the most samples of a call
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  int threads = 1;              // 0: all that this process may use
  bool tune = true;             // measure which kernels are fastest here; else a fixed order
};

// A model that is planned and bound to memory for calls of a few samples, with a copy of the
// weights. With one CPU thread a call allocates nothing and takes no lock. One call at a time; make
// one for each thread to compute at once.
class Predictor {
 public:
  explicit Predictor(const Model& model, const PredictorOptions& options = {});
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;
  ~Predictor();

  int64_t batch() const;
  ArrayType input_type() const;  // float32 or uint8; int32 for codes above 255
  int64_t codes() const;         // samples are codes below this; 0: they are numbers
  const std::vector<int64_t>& input_shape() const;
  int64_t outputs() const;
  // Predicts as Model::predict() does, for 1 to batch() samples of input_type() in row-major order:
  // writes [count, outputs()].
  void run(const void* samples, int64_t count, float* out);
  // Takes memory of the GPU that it computes on, and does not wait for it. Throws usage where
  // samples must be prepared on the host first.
  void run_on_gpu(const void* samples, int64_t count, float* out);
  GpuQueue queue();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A model as a function with gradients, for programs that have a loss and an optimizer of their
// own. It has weights of its own, which may be written to between calls, and computes in float32,
// or in float64 where the model does. On a GPU, memory of the caller is memory of that GPU, and
// calls do not wait for it. One call at a time.
class Differentiable {
 public:
  explicit Differentiable(const Model& model, const DeviceOptions& options = {});
  Differentiable(Differentiable&&) noexcept;
  Differentiable& operator=(Differentiable&&) noexcept;
  ~Differentiable();

  ArrayType type() const;  // float32 or float64, of everything but counters
  const std::vector<int64_t>& input_shape() const;
  int64_t outputs() const;
  GpuQueue queue();
  // Views of the weights, and which of them are trained.
  const std::vector<NamedArray>& weights() const;
  const std::vector<bool>& trained() const;

  // y[n, outputs] = f(x[n, ...]): what the last layer gives. In training, dropout draws by `step`,
  // and batch normalisation follows the batch's statistics.
  void forward(const void* x, int64_t n, void* y, int64_t step, bool training);
  // The gradients of that pass: dx (null: not wanted), and grads as weights(), null for those that
  // are not wanted.
  void backward(const void* x, const void* dy, int64_t n, void* dx, std::span<void* const> grads,
                int64_t step, bool training);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// -------------------------------------------------------------------------------------- training

struct Progress {
  int64_t step = 0, steps = 0;     // made, and of the whole run
  double epoch = 0;                // made, with fractions
  double loss = 0;                 // mean since the last call
  std::optional<double> accuracy;  // of a classifier
  double samples_per_second = 0;
  std::optional<double> limit;  // fraction of what this machine can do
  double learning_rate = 0;     // of the last step
  // Gives a copy of the model with its current weights. It is valid until the callback returns.
  std::function<Model()> model;
};

// An epoch that has ended.
struct Epoch {
  int64_t number = 0;              // from 1
  int64_t step = 0;                // made by its end
  double loss = 0;                 // mean over its steps
  std::optional<double> accuracy;  // of a classifier, over the same
  double learning_rate = 0;        // of its last step
  double seconds = 0;              // since the start of the run
  // On the validation samples, or else on those to test on; absent if it was not evaluated.
  std::optional<Evaluation> evaluation;
  std::function<Model()> model;  // as in Progress
};

struct TrainOptions {
  std::filesystem::path out;    // folder of the run: checkpoints, metrics; empty: none
  std::optional<Samples> test;  // evaluated at the end, and every train.eval_every epochs
  // Evaluated every train.eval_every epochs in the place of `test`; train.keep and train.patience
  // go by them.
  std::optional<Samples> validation;
  bool hold_out = true;  // without `test`, a part of the samples is set aside to test on
  // Trains this model further: its weights, and its preparation of samples, are where the run
  // begins. It must have the layers of the config, and stays as it is.
  std::optional<Model> start;
  bool signals = true;  // SIGINT, SIGTERM and SIGHUP end the run in order
  // Called now and then on the thread that trains; training ends early, in order, when it gives
  // false.
  std::function<bool(const Progress&)> progress;
  std::function<bool(const Epoch&)> epoch_ended;  // likewise, at the end of each epoch
  std::function<bool()> keep_going;               // likewise, at least ten times a second
  // The rate of a step, given that of the schedule; none: the schedule's own.
  std::function<double(int64_t step, double scheduled)> learning_rate;
};

struct TrainResult {
  Model model;
  int64_t steps = 0;
  double train_loss = 0;
  std::optional<double> train_accuracy{}, test_loss{}, test_accuracy{};
  double seconds = 0, samples_per_second = 0;
  std::optional<double> limit{};  // fraction of what this machine can do
};

// Trains on the data that the config names.
TrainResult train(const Config& config, const TrainOptions& options = {});
// Trains on arrays; the config's [data] says how they are prepared.
TrainResult train(const Config& config, const Samples& samples, const TrainOptions& options = {});

struct StepResult {
  double loss = 0;                   // mean over the batch, before the update
  std::optional<double> accuracy{};  // of a classifier, likewise
};

// Training in a loop of the caller's own: each call makes one step on a batch that it is given.
// Calls from several threads follow one another.
class StepTrainer {
 public:
  // Begins with the weights of the model, which stays as it is, and with its loss and optimizer.
  explicit StepTrainer(const Model& model, const DeviceOptions& options = {});
  StepTrainer(StepTrainer&&) noexcept;
  StepTrainer& operator=(StepTrainer&&) noexcept;
  ~StepTrainer();

  // `rate` is the learning rate; none: the optimizer's. Each size of a batch is planned once.
  StepResult step(const Samples& batch, std::optional<double> rate = {});
  int64_t steps() const;                  // made so far
  void give_weights(Model& model) const;  // those of this moment, to a model of the same layers
  GpuQueue queue();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// --------------------------------------------------------------------------- plans and profiles

// What `ridgeline plan` and `ridgeline profile` say of the training step, as text and as JSON.
struct StepReport {
  std::string text, json;
  std::string roofline{};  // of a profile: the kernels under this machine's ceilings, as SVG
};
StepReport plan(const Config& config, const std::optional<Samples>& samples = {});
// Runs the step's kernels for about so many seconds. The samples serve as inputs.
StepReport profile(const Config& config, const std::optional<Samples>& samples = {},
                   double seconds = 2);

// ---------------------------------------------------------------------------------- populations

// The result of one net of several that were trained together.
struct MemberResult {
  std::optional<TrainResult> trained{};  // absent of one that diverged, or did not come to its end
  std::string error;                     // why it diverged; else empty
  int64_t pruned_after = 0;              // epochs after which it was stopped; 0: it was not
  double score = 0;                      // larger is better; by train.monitor or the training loss
};

struct PopulationOptions {
  std::optional<Samples> test, validation;  // as in TrainOptions
  bool hold_out = true;
  // Successive halving: one of so many nets goes on after `prune_epochs`, and again after so many
  // times as many; 0: all train to their end.
  int64_t prune_factor = 0, prune_epochs = 1;
  // Called as results come, one call at a time, from any thread.
  std::function<void(size_t member, const MemberResult& result)> finished;
};

// Trains a net for each config on the same arrays, as many at once as there are threads
// (docs/sweeps.md). Each result is that of train() with one thread. Signals end it in order, and
// members without a result then have neither `trained` nor `error`.
std::vector<MemberResult> train_population(const std::vector<Config>& configs,
                                           const Samples& samples,
                                           const PopulationOptions& options = {});

// One model that gives the mean of these models' outputs: of probabilities, if they are
// classifiers.
Model ensemble(const std::vector<Model>& models);

// ----------------------------------------------------------------------------------- own layers

// Makes a layer known by its type, so that configs and model files can name it. `make` is given the
// numbers of the layer's table, { type = "scaled_tanh", scale = 2.0 }. Throws usage for a type that
// is known already.
using LayerMaker =
    std::function<std::shared_ptr<const CustomLayer>(const std::map<std::string, double>&)>;
void register_layer(const std::string& type, LayerMaker make);

}  // namespace ridgeline
