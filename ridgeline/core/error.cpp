#include "ridgeline/core/error.h"

namespace ridgeline {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return 2;
    case ErrorKind::data:
    case ErrorKind::model:
      return 3;
    case ErrorKind::numeric:
      return 4;
    case ErrorKind::io:
      return 5;
    case ErrorKind::device:
      return 6;
    case ErrorKind::comm:
      return 7;
  }
  return 1;
}

const char* name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::data:
      return "data";
    case ErrorKind::model:
      return "model";
    case ErrorKind::numeric:
      return "numeric";
    case ErrorKind::io:
      return "io";
    case ErrorKind::device:
      return "device";
    case ErrorKind::comm:
      return "comm";
  }
  return "unknown";
}

}  // namespace ridgeline
