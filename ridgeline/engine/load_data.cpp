#include "ridgeline/engine/load_data.h"

#include "ridgeline/data/locate.h"
#include "ridgeline/data/resize.h"

namespace ridgeline::engine {
namespace {

void transform(data::ImageSet& set, const DataConfig& config) {
  if (!config.resize) return;
  data::resize(set, config.resize->height, config.resize->width);
}

}  // namespace

data::DataSet load_data(const DataConfig& config, const std::filesystem::path& data_dir) {
  data::DataSet set = data::load(config.name, data_dir);
  transform(set.train, config);
  transform(set.test, config);
  return set;
}

data::ImageSet load_data(const DataConfig& config, data::Part part,
                         const std::filesystem::path& data_dir, int classes) {
  data::ImageSet set = data::load_part(config.name, part, data_dir, classes);
  transform(set, config);
  return set;
}

}  // namespace ridgeline::engine
