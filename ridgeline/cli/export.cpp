#include <fmt/core.h>

#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/onnx_model.h"
#include "ridgeline/engine/progress.h"

namespace ridgeline::cli {
namespace {

struct ExportFlags {
  std::string model, onnx, weights = "fp32";
  int64_t opset = 17;
};

int run_export(const ExportFlags& flags) {
  if (flags.weights != "fp32" && flags.weights != "fp16") {
    throw_error(ErrorKind::usage, "--weights {}: no such type; use fp32 or fp16",
                quote(flags.weights));
  }
  const engine::LoadedModel loaded = engine::load_model(flags.model, {});
  const engine::OnnxExport made = engine::export_onnx(loaded, flags.opset, flags.weights == "fp16");
  engine::Progress progress;
  for (const std::string& warning : loaded.warnings) progress.warning(warning);
  for (const std::string& warning : made.warnings) progress.warning(warning);
  write_file_atomic(flags.onnx, std::as_bytes(std::span(made.bytes)));
  write_text("-", fmt::format("{}: opset {}, {} -> {}, {} bytes\n", flags.onnx, flags.opset,
                              to_string(loaded.model.input()), to_string(loaded.model.output()),
                              made.bytes.size()));
  return 0;
}

// The producer's name is near the beginning of a file that export has written.
bool is_our_onnx(std::string_view head) {
  return head.substr(0, 32).find("ridgeline") != std::string_view::npos;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand("export", "an ONNX file from a model file");
  declare_model(*command, action, flags->model);
  command->add_option("--onnx", flags->onnx, "ONNX file to write")->required()->type_name("FILE");
  action.files.writes(*command, "--onnx", flags->onnx, is_our_onnx);
  command->add_option("--opset", flags->opset, "version of the operators, 7 to 21 (17)")
      ->type_name("N");
  command->add_option("--weights", flags->weights, "type they are kept in: fp32 (default) or fp16")
      ->type_name("NAME");
  command->footer(
      "The file takes batches of any size. The scaling of bytes and of numbers is part of it, and\n"
      "so is the softmax of a classifier.\n"
      "Examples:\n"
      "  ridgeline export runs/fashion --onnx fashion.onnx\n"
      "  ridgeline export model.safetensors --onnx small.onnx --opset 13 --weights fp16");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      return alone("export", action, [&] { return run_export(*flags); });
    };
  });
}

}  // namespace ridgeline::cli
