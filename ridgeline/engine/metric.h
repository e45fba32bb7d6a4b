#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace ridgeline::engine {

// The metrics of an evaluation. The names are those of train.monitor, of JSON and of TensorBoard.
enum class Metric { loss, accuracy, top5, f1, auc, mse, mae, r2 };

constexpr std::pair<std::string_view, Metric> kMetrics[] = {
    {"loss", Metric::loss}, {"accuracy", Metric::accuracy},
    {"top5", Metric::top5}, {"f1", Metric::f1},
    {"auc", Metric::auc},   {"mse", Metric::mse},
    {"mae", Metric::mae},   {"r2", Metric::r2},
};

std::string_view name(Metric metric);
bool larger_is_better(Metric metric);
std::string to_text(Metric metric, double value);  // "accuracy 97.31 %", "loss 0.0931", "r2 0.874"

}  // namespace ridgeline::engine
