#include "ridgeline/data/prepare/refusals.h"

#include "ridgeline/core/text_format.h"

namespace ridgeline::data {

void refuse_missing(const Field& field, int64_t sample) {
  throw_error(ErrorKind::data,
              "{}: field {}: the value of sample {} is missing; fill it in, or train with "
              "data.missing = \"mean\" or \"indicator\"",
              field.origin, quote(field.name), sample);
}

void refuse_infinite(const Field& field, int64_t sample) {
  throw_error(ErrorKind::data,
              "{}: field {}: the value of sample {} is infinite; mend the sample or leave it out",
              field.origin, quote(field.name), sample);
}

void refuse_too_large(const Field& field, int64_t sample) {
  throw_error(
      ErrorKind::data,
      "{}: field {}: the value of sample {} is beyond the range of the model's numbers; mend "
      "the sample or leave it out, or train with a clip in data.columns",
      field.origin, quote(field.name), sample);
}

}  // namespace ridgeline::data
