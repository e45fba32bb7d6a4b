#include "ridgeline/nn/recompute.h"

#include <algorithm>

namespace ridgeline::nn {
namespace {

// The numbers of segments to try: more segments than this keep more than they save.
constexpr size_t kMostSegments = 64;

// Cuts after the layer with which a segment reaches `least` bytes.
std::vector<size_t> cut(const std::vector<double>& bytes, double least) {
  std::vector<size_t> begins{0};
  double sum = 0;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    sum += bytes[i];
    if (sum < least) continue;
    begins.push_back(i + 1);
    sum = 0;
  }
  return begins;
}

// Returns the memory that is kept from the forward pass, plus the largest segment.
double cost(const Model& model, std::vector<double> bytes, const std::vector<size_t>& begins,
            double bytes_per_element) {
  double kept = 0, largest = 0;
  std::vector<bool> counted(bytes.size());
  for (size_t s = 1; s < begins.size(); ++s) {
    const size_t end = s + 1 < begins.size() ? begins[s + 1] : bytes.size();
    for (size_t i = begins[s]; i < end; ++i) {
      for (const int from : model.inputs_of(i)) {
        if (from == kGraphInput || size_t(from) >= begins[s] || counted[size_t(from)]) continue;
        counted[size_t(from)] = true;
        const double output = bytes_per_element * double(model.output_of(from).numel());
        kept += output;
        bytes[size_t(from)] -= std::min(bytes[size_t(from)], output);
      }
    }
  }
  // Recomputing a layer that reads one which is not recomputed needs the latter's output.
  for (size_t i = 0; i < begins.back(); ++i) {
    if (counted[i] || bytes[i] == 0) continue;
    for (const int from : model.inputs_of(i)) {
      if (from == kGraphInput || counted[size_t(from)]) continue;
      if (model.layers()[size_t(from)]->can_recompute()) continue;
      counted[size_t(from)] = true;
      kept += bytes_per_element * double(model.output_of(from).numel());
    }
  }
  for (size_t s = 0; s < begins.size(); ++s) {
    const size_t end = s + 1 < begins.size() ? begins[s + 1] : bytes.size();
    double sum = 0;
    for (size_t i = begins[s]; i < end; ++i) sum += bytes[i];
    largest = std::max(largest, sum);
  }
  return kept + largest;
}

}  // namespace

std::vector<size_t> choose_segments(const Model& model, std::vector<double> bytes,
                                    double bytes_per_element) {
  double total = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!model.layers()[i]->can_recompute()) bytes[i] = 0;  // kept in any case
    total += bytes[i];
  }
  std::vector<size_t> best{0};
  double least = total;
  for (size_t parts = 2; parts <= std::min(bytes.size(), kMostSegments); ++parts) {
    const std::vector<size_t> begins = cut(bytes, total / double(parts));
    const double now = cost(model, bytes, begins, bytes_per_element);
    if (now >= least) continue;
    least = now;
    best = begins;
  }
  return best;
}

}  // namespace ridgeline::nn
