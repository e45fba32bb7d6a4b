#include <cstdio>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"

int main() {
  const ridgeline::Shape images{32, 28, 28};
  std::printf("%s\n", ridgeline::to_string(images.flat_from(1)).c_str());
  return images.flat_from(1) == ridgeline::Shape{32, 784} ? 0 : 1;
}
