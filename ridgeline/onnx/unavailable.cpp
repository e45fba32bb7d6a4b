#include "ridgeline/onnx/onnx.h"

namespace ridgeline::onnx {

bool is_onnx_file(const std::filesystem::path& file) { return file.extension() == ".onnx"; }

#ifdef RIDGELINE_HAVE_ONNX

bool available() { return true; }

#else

bool available() { return false; }

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw_error(ErrorKind::usage,
              "{}: this build has no ONNX: install libprotobuf-dev, protobuf-compiler and "
              "libonnx-dev, and build again",
              what);
}

}  // namespace

ImportedModel import_model(const std::filesystem::path& file, const ImportOptions&) {
  fail(file.string());
}
std::string export_model(const nn::Model&, const ExportOptions&) { fail("export"); }

#endif

}  // namespace ridgeline::onnx
