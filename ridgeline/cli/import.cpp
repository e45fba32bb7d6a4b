#include <fmt/core.h>

#include <charconv>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/onnx_model.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct ImportFlags {
  std::string file, out, input_shape, images;
  engine::OnnxOptions onnx;
};

// "3x32x32"
Shape parse_shape(const std::string& text) {
  std::vector<int64_t> dims;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end && dims.size() < size_t(Shape::kMaxRank)) {
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 1) break;
    dims.push_back(extent);
    if (stop == end) return Shape(dims);
    if (*stop != 'x') break;
    at = stop + 1;
  }
  throw_error(ErrorKind::usage, "--input-shape {}: should read like 3x32x32", quote(text));
}

std::optional<data::ScaleKind> parse_images(const std::string& text) {
  if (text.empty()) return {};
  if (text == "raw") return data::ScaleKind::raw;
  if (text == "unit") return data::ScaleKind::unit;
  throw_error(ErrorKind::usage, "--images {}: no such scale; use raw or unit", quote(text));
}

int run_import(ImportFlags& flags) {
  if (!flags.input_shape.empty()) flags.onnx.graph.input = parse_shape(flags.input_shape);
  flags.onnx.images = parse_images(flags.images);
  try {
    const engine::LoadedModel loaded = engine::load_onnx(flags.file, {}, flags.onnx);
    nn::require_finite(loaded.model, flags.file, ErrorKind::model);
    for (const std::string& warning : loaded.warnings) engine::Progress().warning(warning);
    write_file_atomic(flags.out, engine::to_model_file(loaded));
    const nn::Model& model = loaded.model;
    write_text(
        "-", fmt::format("{}: {}, {} parameters, {} -> {}{}\n", flags.out,
                         counted(int64_t(model.layers().size()), "layer"),
                         engine::grouped(double(model.parameter_count())), to_string(model.input()),
                         to_string(model.output()), loaded.classes > 0 ? " (classes)" : ""));
  } catch (const onnx::RefusedModel& refused) {
    for (const std::string& node : refused.nodes()) {
      write_stderr("  " + one_line(node) + "\n");
    }
    throw_error(ErrorKind::model, "{}: {} cannot be imported, see above", flags.file,
                counted(int64_t(refused.nodes().size()), "node"));
  }
  return 0;
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* command = app.add_subcommand("import", "a model file from an ONNX file");
  command->add_option("model", flags->file, "ONNX file")->required()->type_name("");
  action.files.reads(*command, "the model", flags->file);
  command->add_option("--out", flags->out, "model file to write, .safetensors")
      ->required()
      ->type_name("FILE");
  action.files.writes(*command, "--out", flags->out, is_model_file());
  command
      ->add_option("--input-shape", flags->input_shape,
                   "shape of one sample, as 3x32x32, where the file leaves it open")
      ->type_name("SHAPE");
  command
      ->add_option("--output", flags->onnx.graph.output,
                   "output of the graph to import (default: the first of floats)")
      ->type_name("NAME");
  command
      ->add_option("--images", flags->images,
                   "samples are images of bytes, which the net sees as raw (0-255) or unit (0-1)")
      ->type_name("SCALE");
  command->add_flag("--classes", flags->onnx.classes,
                    "the outputs are logits of classes, which a softmax follows");
  command->footer(
      "infer, eval and profile take .onnx files directly; import makes a file to fine-tune\n"
      "(train --init), and says what the ONNX file does not.\n"
      "Examples:\n"
      "  ridgeline import net.onnx --out net.safetensors\n"
      "  ridgeline import lenet.onnx --out lenet.safetensors --images unit --classes\n"
      "  ridgeline import gru.onnx --out gru.safetensors --input-shape 50x8");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("import", action, [&] { return run_import(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
