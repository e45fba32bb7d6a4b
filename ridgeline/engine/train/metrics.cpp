#include "ridgeline/engine/train/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/prof/event_file.h"

namespace ridgeline::engine {
namespace {

// Writes all digits that are needed to read back the same number.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";  // JSON has no NaN
}

class MetricsFile final : public TrainObserver {
 public:
  explicit MetricsFile(RunFolder& folder) : folder_(folder) {}

  void started(const TrainReport&, Trainer& trainer) override {
    const auto [test, validation] = folder_.trim_metrics(trainer.step());
    evaluated_ = test;
    validated_ = validation;
  }

  void logged(const TrainPoint& point) override {
    std::string line = head("train", point);
    line += fmt::format(",\"lr\":{},\"inputs_per_second\":{:.6g}", json_number(point.lr),
                        point.inputs_per_second);
    if (point.gradient_norm) {
      line += ",\"gradient_norm\":" + json_number(*point.gradient_norm);
    }
    if (point.loss_scale) {
      line += fmt::format(",\"loss_scale\":{:.9g},\"skipped_steps\":{}", *point.loss_scale,
                          point.skipped_steps);
    }
    if (point.limit_fraction)
      line += fmt::format(",\"limit_fraction\":{:.4g}", *point.limit_fraction);
    finish(line, point.seconds);
  }

  void evaluated(const EvalPoint& point, Trainer&) override {
    // A finished run that is resumed is evaluated again, but its line already exists.
    int64_t& last = point.validation ? validated_ : evaluated_;
    if (point.step == last) return;
    last = point.step;
    std::string line = head(point.validation ? "validation" : "eval", point);
    for (const auto& [metric, value] : point.metrics) {
      if (metric == Metric::loss || metric == Metric::accuracy) continue;
      line += fmt::format(",\"{}\":{}", name(metric), json_number(value));
    }
    finish(line, point.seconds);
  }

 private:
  template <typename Point>
  static std::string head(const char* event, const Point& point) {
    std::string text = fmt::format("{{\"event\":\"{}\",\"step\":{},\"epoch\":{:.6g},\"loss\":{}",
                                   event, point.step, point.epoch, json_number(point.loss));
    if (!std::isnan(point.accuracy)) text += fmt::format(",\"accuracy\":{:.6g}", point.accuracy);
    return text;
  }
  void finish(const std::string& line, double seconds) {
    folder_.append_metrics(line + fmt::format(",\"seconds\":{:.6g}}}", seconds));
  }

  RunFolder& folder_;
  int64_t evaluated_ = -1, validated_ = -1;  // the steps of the file's last evaluations
};

class TensorBoard final : public TrainObserver {
 public:
  TensorBoard(std::filesystem::path folder, bool histograms)
      : folder_(std::move(folder)), histograms_(histograms) {}

  void started(const TrainReport&, Trainer& trainer) override {
    file_.emplace(folder_, trainer.step());
    if (trainer.step() == 0) put_weights(trainer);
  }

  void logged(const TrainPoint& point) override {
    std::vector<prof::EventFile::Scalar> values{
        {"loss/train", point.loss},
        {"learning_rate", point.lr},
        {"speed/inputs_per_second", point.inputs_per_second}};
    if (!std::isnan(point.accuracy)) values.push_back({"accuracy/train", point.accuracy});
    if (point.gradient_norm) values.push_back({"gradient_norm", *point.gradient_norm});
    if (point.limit_fraction) {
      values.push_back({"speed/fraction_of_the_limit", *point.limit_fraction});
    }
    file_->scalars(point.step, values);
  }

  void evaluated(const EvalPoint& point, Trainer& trainer) override {
    std::vector<std::string> tags;
    for (const auto& each : point.metrics) {
      tags.push_back(
          fmt::format("{}/{}", name(each.first), point.validation ? "validation" : "test"));
    }
    std::vector<prof::EventFile::Scalar> values;
    for (size_t i = 0; i < tags.size(); ++i) values.push_back({tags[i], point.metrics[i].second});
    file_->scalars(point.step, values);
    put_weights(trainer);
  }

 private:
  void put_weights(Trainer& trainer) {
    if (!histograms_) return;
    for (const nn::Param& param : trainer.model().params()) {
      if (!param.trained()) continue;
      const Tensor& host = param.value.view();
      const prof::Histogram histogram = host.dtype == DType::fp64
                                            ? prof::histogram_of(host.span<const double>())
                                            : prof::histogram_of(host.span<const float>());
      file_->histogram(trainer.step(), "weights/" + param.name, histogram);
    }
  }

  std::filesystem::path folder_;
  bool histograms_;
  std::optional<prof::EventFile> file_;
};

}  // namespace

MetricPoints read_metrics(const std::filesystem::path& file) {
  MetricPoints points;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return points;
  std::istringstream in(read_text_file(file));
  const auto fill = [](auto& point, const nlohmann::json& json) {
    const auto number = [&](const char* key) {
      const auto found = json.find(key);
      return found != json.end() && found->is_number() ? found->get<double>() : NAN;
    };
    point.step = json.value("step", int64_t{0});
    point.epoch = number("epoch");
    point.loss = number("loss");
    point.accuracy = number("accuracy");
    point.seconds = number("seconds");
  };
  for (std::string line; std::getline(in, line);) {
    const auto json = parse_json(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const auto event = json.value("event", nlohmann::json());
    if (event == "eval") {
      fill(points.test.emplace_back(), json);
    } else if (event == "validation") {
      fill(points.validation.emplace_back(), json);
    } else {
      fill(points.train.emplace_back(), json);
    }
  }
  return points;
}

std::unique_ptr<TrainObserver> metrics_observer(RunFolder& folder) {
  return std::make_unique<MetricsFile>(folder);
}

std::unique_ptr<TrainObserver> tensorboard_observer(const RunFolder& folder, bool histograms) {
  return std::make_unique<TensorBoard>(folder.tensorboard(), histograms);
}

}  // namespace ridgeline::engine
