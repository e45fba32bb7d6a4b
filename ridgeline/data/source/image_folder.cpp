#include "ridgeline/data/source/image_folder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/data/source/detect.h"

namespace ridgeline::data {
namespace {

namespace fs = std::filesystem;

bool passed_over(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "Thumbs.db" || name == "desktop.ini" ||
         name == "__MACOSX";
}

// Returns the entries of a folder in byte order of their names.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!passed_over(at->path())) entries.push_back(at->path());
  }
  if (error) {
    throw_error(ErrorKind::data, "{}: cannot be read: {}", folder.string(), error.message());
  }
  std::ranges::sort(entries);
  return entries;
}

bool is_subfolder(const fs::path& path) {
  std::error_code ignored;  // a file that cannot be examined is refused when it is opened
  return fs::is_directory(path, ignored);
}

bool is_image(const fs::path& path) {
  const Content content = detect(path).content;
  return content == Content::png || content == Content::jpeg;
}

// Calls f(i) for each i in [0, count), on several threads; rethrows the first exception.
template <typename F>
void for_each_index(int64_t count, int64_t least, F&& f) {
  const int threads = int(std::clamp<int64_t>(count / least, 1, available_threads()));
  std::atomic<int64_t> next{0};
  std::exception_ptr fault;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) f(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) {
      try {
        others.emplace_back(work);
      } catch (const std::system_error&) {  // no more threads: the others do its work
        break;
      }
    }
    work();
  }
  if (fault) std::rethrow_exception(fault);
}

class ImageValues final : public FieldValues {
 public:
  ImageValues(std::vector<fs::path> files, const ImageOptions& options)
      : files_(std::move(files)), options_(options) {}

  void read(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    const size_t bytes = size_t(options_.channels * options_.height * options_.width);
    for_each_index(end - begin, 16, [&](int64_t i) {
      decode(files_[size_t(begin + i)], out.subspan(size_t(i) * bytes, bytes));
    });
  }

 private:
  void decode(const fs::path& path, std::span<std::byte> out) const {
    DecodedImage image = read_image(path);
    set_channels(image, options_.channels);
    const int64_t height = image.info.height, width = image.info.width;
    if (height == options_.height && width == options_.width) {
      std::memcpy(out.data(), image.pixels.data(), out.size());
      return;
    }
    const Tensor pixels{image.pixels.data(), DType::uint8, {options_.channels, height, width}, {}};
    const bool shrinks = options_.height <= height && options_.width <= width;
    const bool area = options_.filter == ResizeFilter::area ||
                      (options_.filter == ResizeFilter::automatic && shrinks);
    const HostTensor resized = area ? resize_by_area(pixels, options_.height, options_.width)
                                    : resize(pixels, options_.height, options_.width);
    std::memcpy(out.data(), resized.view().data, out.size());
  }

  std::vector<fs::path> files_;
  ImageOptions options_;
};

// "images of 20 x 30 to 640 x 480 pixels"
std::string sizes_of(const ImageFolder& folder) {
  const auto area = [](const ImageInfo& info) { return info.height * info.width; };
  const auto [least, most] = std::ranges::minmax_element(folder.infos, {}, area);
  std::string text = fmt::format("images of {} x {}", least->width, least->height);
  if (!folder.same_size()) text += fmt::format(" to {} x {}", most->width, most->height);
  return text + " pixels";
}

void add_class(ImageFolder& folder, const fs::path& path) {
  const auto label = int32_t(folder.classes.size());
  const size_t before = folder.files.size();
  for (const fs::path& entry : entries_of(path)) {
    if (is_subfolder(entry)) {
      throw_error(ErrorKind::data,
                  "{}: a folder inside the class {}; put the images right into the class folder",
                  entry.string(), quote(path.filename().string()));
    }
    folder.files.push_back(entry);
    folder.labels.push_back(label);
  }
  if (folder.files.size() == before) {
    throw_error(ErrorKind::data, "{}: the class holds no images; remove the folder or fill it",
                path.string());
  }
  folder.classes.push_back(path.filename().string());
}

}  // namespace

bool ImageFolder::same_size() const {
  return std::ranges::all_of(infos, [&](const ImageInfo& info) {
    return info.height == infos.front().height && info.width == infos.front().width;
  });
}

bool ImageFolder::all_grey() const {
  return std::ranges::all_of(infos, [](const ImageInfo& info) { return info.channels == 1; });
}

ImageFolder scan_image_folder(const fs::path& path) {
  ImageFolder folder;
  folder.path = path;
  std::vector<fs::path> beside;
  for (const fs::path& entry : entries_of(path)) {
    is_subfolder(entry) ? add_class(folder, entry) : beside.push_back(entry);
  }
  for (const fs::path& file : beside) {
    if (!is_image(file)) continue;
    if (!folder.classes.empty()) {
      throw_error(ErrorKind::data,
                  "{}: an image beside the class folders; put it into the folder of its class",
                  file.string());
    }
    folder.files.push_back(file);
  }
  if (folder.files.empty()) {
    throw_error(ErrorKind::data,
                "{}: holds no images; give a folder with a folder of PNG or JPEG files for each "
                "class",
                path.string());
  }
  folder.infos.resize(folder.files.size());
  for_each_index(int64_t(folder.files.size()), 256, [&](int64_t i) {
    folder.infos[size_t(i)] = read_image_info(folder.files[size_t(i)]);
  });
  return folder;
}

ImageOptions chosen_size(const ImageFolder& folder, ImageOptions options) {
  if (!options.choose_size || options.height > 0 || folder.infos.empty()) return options;
  double height = 0, width = 0;
  for (const ImageInfo& info : folder.infos) {
    height += double(info.height) / double(folder.infos.size());
    width += double(info.width) / double(folder.infos.size());
  }
  const double side = std::max(height, width);
  const double factor = side > double(kLargeSide) ? double(kChosenSide) / side : 1.0;
  if (factor == 1.0 && folder.same_size()) return options;
  options.height = std::max<int64_t>(1, std::lround(height * factor));
  options.width = std::max<int64_t>(1, std::lround(width * factor));
  return options;
}

FieldSet read_image_folder(const ImageFolder& folder, const ImageOptions& options) {
  ImageOptions settled = options;
  if (settled.channels == 0) settled.channels = folder.all_grey() ? 1 : 3;
  if (settled.height == 0 || settled.width == 0) {
    for (size_t i = 1; i < folder.infos.size(); ++i) {
      const ImageInfo &first = folder.infos.front(), &other = folder.infos[i];
      if (other.height == first.height && other.width == first.width) continue;
      throw_error(ErrorKind::data,
                  "{}: is {} x {} pixels, but {} is {} x {}; give a size that all images "
                  "are resized to: --image-size WIDTHxHEIGHT, or data.resize = [height, width]",
                  folder.files[i].string(), other.width, other.height,
                  folder.files.front().string(), first.width, first.height);
    }
    settled.height = folder.infos.front().height;
    settled.width = folder.infos.front().width;
  }
  Field image;
  image.name = "image";
  image.dtype = DType::uint8;
  image.shape = settled.channels == 1 ? Shape{settled.height, settled.width}
                                      : Shape{settled.channels, settled.height, settled.width};
  image.samples = int64_t(folder.files.size());
  image.origin = folder.path.string();
  image.values = std::make_shared<ImageValues>(folder.files, settled);
  if (options.choose_size && options.height > 0) image.stored = sizes_of(folder);
  FieldSet set(folder.path.string());
  set.add(std::move(image));
  if (!folder.classes.empty()) {
    Field label = category_field("label", folder.labels, folder.classes);
    label.origin = folder.path.string();
    set.add(std::move(label));
  }
  return set;
}

}  // namespace ridgeline::data
