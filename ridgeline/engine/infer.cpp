#include "ridgeline/engine/infer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "ridgeline/core/file.h"
#include "ridgeline/data/idx.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/infer_report.h"
#include "ridgeline/engine/predict.h"

namespace ridgeline::engine {
namespace {

HostTensor read_images(const std::filesystem::path& input, const nn::Model& model,
                       const std::optional<ImageSize>& resize) {
  if (!data::is_idx(input)) return data::read_raw(input, model.input());
  HostTensor images = data::read_idx(input);
  const Tensor view = images.view();
  if (view.dtype != DType::uint8) {
    throw_error(ErrorKind::data, "{}: holds {} but images are bytes (uint8)", input.string(),
                name(view.dtype));
  }
  if (resize && (view.shape.rank() == 3 || view.shape.rank() == 4)) {
    images = data::resize(images.view(), resize->height, resize->width);
  }
  const Shape& shape = images.view().shape;
  const bool fits = shape.rank() >= 1 && shape.numel() == shape[0] * model.input().numel();
  if (!fits) {
    throw_error(ErrorKind::data, "{}: holds {} but the model takes items of {}", input.string(),
                to_string(view.shape), to_string(model.input()));
  }
  return images;
}

void append_row(std::string& text, InferFormat format, int64_t index, int64_t label,
                std::span<const double> p) {
  auto out = std::back_inserter(text);
  const char* head = format == InferFormat::csv ? "{},{}" : "{{\"index\":{},\"label\":{},\"p\":[";
  fmt::format_to(out, fmt::runtime(head), index, label);
  for (size_t i = 0; i < p.size(); ++i) {
    if (format == InferFormat::csv || i > 0) text += ',';
    if (format == InferFormat::json && !std::isfinite(p[i])) {
      text += "null";  // JSON has no NaN
    } else {
      fmt::format_to(out, "{:.9g}", p[i]);
    }
  }
  text += format == InferFormat::csv ? "\n" : "]}\n";
}

std::string header(InferFormat format, int64_t classes) {
  if (format != InferFormat::csv) return {};
  std::string text = "index,label";
  for (int64_t i = 0; i < classes; ++i) text += fmt::format(",p{}", i);
  return text + "\n";
}

}  // namespace

InferReport infer(const std::filesystem::path& model, const std::filesystem::path& input,
                  const std::filesystem::path& output, const InferOptions& options) {
  LoadedModel loaded = load_model(model, options.model);
  if (!loaded.symbols.empty()) {
    throw_error(ErrorKind::usage, "{}: is a language model; ask it for text with --generate N",
                model.string());
  }
  const HostTensor images = read_images(input, loaded.model, loaded.config.data.resize);
  const auto bytes = images.span<const uint8_t>();
  const int64_t features = loaded.model.input().numel(), classes = loaded.model.output().numel();
  InferFormat format = options.format;
  if (format == InferFormat::automatic) {
    const auto ending = output.extension();
    format = ending == ".json" || ending == ".jsonl" ? InferFormat::json : InferFormat::csv;
  }
  InferReport report;
  report.warnings = loaded.warnings;
  report.rows = images.view().shape[0];
  const int64_t batch = std::clamp<int64_t>(report.rows, 1, options.batch);
  Machine machine(loaded.config.run);
  Predictor predictor(machine, loaded.config, loaded.model, loaded.scaling, loaded.classes, batch);
  std::optional<InferPage> page;
  if (!options.report.empty()) {
    make_folder("--report", options.report);
    page.emplace(classes, loaded.model.input());
  }
  std::string text = header(format, classes);
  for (int64_t begin = 0; begin < report.rows; begin += batch) {
    const int64_t rows = std::min(batch, report.rows - begin);
    const Clock clock;
    const auto p = predictor.run(bytes.subspan(size_t(begin * features), size_t(rows * features)));
    report.seconds += clock.seconds();
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = std::span(p).subspan(size_t(r * classes), size_t(classes));
      const int64_t label = std::max_element(row.begin(), row.end()) - row.begin();
      append_row(text, format, begin + r, label, row);
      if (page) {
        page->add(begin + r, label, row,
                  bytes.subspan(size_t((begin + r) * features), size_t(features)));
      }
    }
    if (output == "-") {
      if (!write_stdout(text)) {  // nobody reads the rest
        report.rows = begin + rows;
        return report;
      }
      text.clear();
    }
  }
  if (output == "-") {
    write_stdout(text);  // the header of an empty input
  } else {
    write_file_atomic(output, std::as_bytes(std::span(text)));
  }
  if (page) {
    page->write(options.report, report, model.string(), input.string(),
                machine.runtime().fingerprint());
  }
  return report;
}

}  // namespace ridgeline::engine
