// Predicts samples with a model file: predict MODEL.safetensors NUMBER...
#include <ridgeline/ridgeline.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: predict MODEL NUMBER...\n");
    return 2;
  }
  try {
    auto model = ridgeline::Model::load(argv[1]);
    std::vector<float> numbers;
    for (int i = 2; i < argc; ++i) numbers.push_back(std::strtof(argv[i], nullptr));
    std::vector<int64_t> shape = model.input_shape();
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    shape.insert(shape.begin(), int64_t(numbers.size()) / size);
    const std::vector<float> outputs = model.predict({numbers, shape});
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::printf("%g%c", outputs[i], (i + 1) % size_t(model.outputs()) == 0 ? '\n' : ' ');
    }
  } catch (const ridgeline::Error& error) {
    std::fprintf(stderr, "predict: %s\n", error.what());
    return ridgeline::exit_code(error.kind());
  }
}
