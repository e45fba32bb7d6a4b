#include "python/src/train.h"

#include <chrono>
#include <optional>

namespace ridgeline::python {
namespace {

template <typename T>
void put(nb::dict& to, const char* key, const std::optional<T>& value) {
  if (value) to[key] = *value;
}

nb::dict as_dict(const Progress& now) {
  nb::dict all;
  all["step"] = now.step;
  all["steps"] = now.steps;
  all["epoch"] = now.epoch;
  all["loss"] = now.loss;
  put(all, "accuracy", now.accuracy);
  all["samples_per_second"] = now.samples_per_second;
  put(all, "limit", now.limit);
  all["lr"] = now.learning_rate;
  return all;
}

nb::dict as_dict(const Epoch& epoch) {
  nb::dict all;
  all["epoch"] = epoch.number;
  all["step"] = epoch.step;
  all["loss"] = epoch.loss;
  put(all, "accuracy", epoch.accuracy);
  all["lr"] = epoch.learning_rate;
  all["seconds"] = epoch.seconds;
  if (epoch.evaluation) all["validation"] = python::as_dict(*epoch.evaluation);
  return all;
}

// Calls Python from the thread that trains. The first exception ends the run and is kept.
class Caller {
 public:
  Caller(nb::object on_progress, nb::object on_epoch, nb::object control)
      : on_progress_(std::move(on_progress)),
        on_epoch_(std::move(on_epoch)),
        control_(std::move(control)) {
    if (!control_.is_none()) read_rate();
  }

  void install(TrainOptions& options) {
    if (!on_progress_.is_none()) {
      options.progress = [this](const Progress& now) { return call(on_progress_, now); };
    }
    if (!on_epoch_.is_none()) {
      options.epoch_ended = [this](const Epoch& epoch) { return call(on_epoch_, epoch); };
    }
    options.keep_going = [this] { return keep_going(); };
    if (!control_.is_none()) {
      options.learning_rate = [this](int64_t, double scheduled) {
        return rate_.value_or(scheduled);
      };
    }
  }

  nb::object raised() const { return raised_ ? nb::borrow(raised_->value()) : nb::none(); }

 private:
  // During the call `control.model` gives the model with its current weights.
  template <typename T>
  bool call(const nb::object& callback, const T& state) {
    const nb::gil_scoped_acquire gil;
    if (control_.is_none()) return answer_of(callback, state);
    control_.attr("model") = nb::cpp_function([&state] { return state.model(); });
    const bool goes_on = answer_of(callback, state);
    control_.attr("model") = nb::none();
    return goes_on;
  }

  template <typename T>
  bool answer_of(const nb::object& callback, const T& state) {
    try {
      const nb::object answer = callback(as_dict(state));
      if (!control_.is_none()) read_rate();
      return answer.is_none() || nb::cast<bool>(answer);
    } catch (nb::python_error& error) {
      if (!raised_) raised_.emplace(std::move(error));
    } catch (const nb::cast_error&) {
      if (!raised_) {
        PyErr_SetString(PyExc_TypeError, "callbacks: a callback returned neither None nor a bool");
        raised_.emplace();
      }
    }
    return false;
  }

  void read_rate() {
    const nb::object rate = control_.attr("lr");
    rate_ = rate.is_none() ? std::nullopt : std::optional(nb::cast<double>(rate));
  }

  // Python's signal handlers run here, on its main thread.
  bool keep_going() {
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < std::chrono::milliseconds(50)) return true;
    asked_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return true;
    if (raised_) {
      PyErr_Clear();
    } else {
      raised_.emplace();
    }
    return false;
  }

  nb::object on_progress_, on_epoch_, control_;
  std::optional<double> rate_;  // that a callback has set
  std::optional<nb::python_error> raised_;
  std::chrono::steady_clock::time_point asked_{};
};

nb::dict figures(const TrainResult& result) {
  nb::dict all;
  all["steps"] = result.steps;
  all["loss"] = result.train_loss;
  put(all, "accuracy", result.train_accuracy);
  put(all, "test_loss", result.test_loss);
  put(all, "test_accuracy", result.test_accuracy);
  all["seconds"] = result.seconds;
  all["samples_per_second"] = result.samples_per_second;
  put(all, "limit", result.limit);
  return all;
}

}  // namespace

BorrowedSamples::BorrowedSamples(nb::handle x, nb::handle y, nb::handle weights,
                                 const BorrowedNames& names, const GpuQueue* queue)
    : x_(x, names.x, queue), y_(y, names.y, queue) {
  if (!weights.is_none()) weights_.emplace(weights, names.weights);
  const auto compare = [&](const char* what, int64_t count) {
    if (count == x_.samples()) return;
    throw nb::value_error((std::string(names.all) + ": got " + std::to_string(x_.samples()) +
                           " samples and " + std::to_string(count) + " " + what +
                           ", expected as many of both")
                              .c_str());
  };
  compare("targets", y_.samples());
  if (weights_) compare("weights", weights_->samples());
}

Samples BorrowedSamples::samples() const {
  return {x_.array(), y_.array(), weights_ ? weights_->array() : Array()};
}

nb::dict as_dict(const Evaluation& scores) {
  nb::dict all;
  all["loss"] = scores.loss;
  put(all, "accuracy", scores.accuracy);
  put(all, "top5", scores.top5);
  put(all, "f1", scores.f1);
  put(all, "auc", scores.auc);
  put(all, "mse", scores.mse);
  put(all, "mae", scores.mae);
  put(all, "r2", scores.r2);
  return all;
}

nb::tuple train(const std::string& toml, const nb::tuple& data, const nb::tuple& validation,
                const Model* start, const std::string& out, nb::object on_progress,
                nb::object on_epoch, nb::object control) {
  const Config config = Config::parse(toml);
  std::optional<BorrowedSamples> samples, others;
  TrainOptions options;
  options.out = out;
  options.signals = false;
  if (start != nullptr) options.start = *start;
  if (!data[0].is_none()) {
    samples.emplace(data[0], data[1], data[2], BorrowedNames{});
    options.hold_out = false;
  }
  if (!validation[0].is_none()) {
    others.emplace(validation[0], validation[1], validation[2],
                   BorrowedNames{"validation[0]", "validation[1]", "validation[2]", "validation"});
    options.validation = others->samples();
  }
  Caller caller(std::move(on_progress), std::move(on_epoch), std::move(control));
  caller.install(options);
  std::optional<TrainResult> result;
  {
    const nb::gil_scoped_release unlocked;
    result = samples ? ridgeline::train(config, samples->samples(), options)
                     : ridgeline::train(config, options);
  }
  return nb::make_tuple(std::move(result->model), figures(*result), caller.raised());
}

}  // namespace ridgeline::python
