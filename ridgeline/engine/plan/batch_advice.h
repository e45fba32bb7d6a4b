#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// A training step at one batch size, planned and measured.
struct BatchPoint {
  int64_t batch = 0;
  double seconds = 0;  // per step
  double inputs_per_second() const { return double(batch) / seconds; }
  size_t memory = 0;  // of the step's own values
};

struct BatchAdvice {
  std::vector<BatchPoint> points;  // by growing batch
  size_t free_bytes = 0;           // on the device, with weights and data in place
  double bytes_per_sample = 0;
  int64_t largest = 0;     // largest that fits; predicted from the memory of the points
  bool whole_set = false;  // the training set has no more samples than `largest`
  int64_t fastest = 0;     // of the points, by inputs per second
  int64_t enough = 0;      // the smallest within 5 % of that
};

// Doubles the batch of the config's network, beginning with 1, until it gains nothing or does not
// fit.
BatchAdvice advise_batch(const Config& config, std::shared_ptr<const data::DataSet> set);

std::string to_text(const BatchAdvice& advice);
std::string to_json_text(const BatchAdvice& advice);

}  // namespace ridgeline::engine
