#include "ridgeline/core/error.h"
#include "ridgeline/serve/options.h"

// Replaces the server in a build without Boost or simdjson.
namespace ridgeline::serve {

int serve(const ServeOptions&) {
  throw_error(
      ErrorKind::usage,
      "this build has no server: install libboost-dev and libsimdjson-dev, and build again");
}

}  // namespace ridgeline::serve
