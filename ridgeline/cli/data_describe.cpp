#include "ridgeline/engine/data_describe.h"

#include <charconv>
#include <memory>

#include "ridgeline/cli/commands.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::cli {
namespace {

struct DescribeFlags {
  std::string path, target, json, config, header, separator, size, channels, dtype, target_dtype;
  std::vector<std::string> categories, texts;
  std::vector<int64_t> shape;
  bool checksums = false;
};

char parse_separator(const std::string& text) {
  if (text == "tab" || text == "\\t") return '\t';
  if (text.size() == 1) return text[0];
  throw_error(ErrorKind::usage, "--separator: {} is not one character, nor tab", quote(text));
}

// "WIDTHxHEIGHT"
void parse_size(const std::string& text, data::ImageOptions& to) {
  constexpr int64_t kMost = 65535;
  const size_t cross = text.find('x');
  const auto side = [&](std::string_view digits, int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value >= 1 &&
           value <= kMost;
  };
  const std::string_view all(text);
  if (cross == std::string::npos || !side(all.substr(0, cross), to.width) ||
      !side(all.substr(cross + 1), to.height)) {
    throw_error(ErrorKind::usage, "--image-size: {} is not WIDTHxHEIGHT, as in 224x224",
                quote(text));
  }
}

int run_describe(const DescribeFlags& flags) {
  engine::DescribeOptions options;
  options.target = flags.target;
  options.target_dtype = flags.target_dtype;
  if (!flags.target_dtype.empty()) (void)data::parse_stored_type(flags.target_dtype);
  options.checksums = flags.checksums;
  options.config = !flags.config.empty();
  data::TableOptions& table = options.source.table;
  if (!flags.separator.empty()) table.separator = parse_separator(flags.separator);
  using Header = data::TableOptions::Header;
  if (!flags.header.empty()) table.header = flags.header == "yes" ? Header::yes : Header::no;
  table.categories = flags.categories;
  table.texts = flags.texts;
  if (!flags.size.empty()) parse_size(flags.size, options.source.images);
  if (!flags.channels.empty()) options.source.images.channels = flags.channels == "grey" ? 1 : 3;
  if (!flags.dtype.empty()) options.source.raw_type = data::parse_stored_type(flags.dtype);
  if (!flags.shape.empty()) options.source.raw_shape = Shape(flags.shape);
  const engine::DescribeReport report = engine::describe_data(flags.path, options);
  if (flags.json != "-" && flags.config != "-") write_text("-", report.text);
  write_text(flags.json, report.json);
  write_text(flags.config, report.config);
  return 0;
}

}  // namespace

void add_data_describe(CLI::App& group, Action& action) {
  auto flags = std::make_shared<DescribeFlags>();
  CLI::App* command = group.add_subcommand(
      "describe", "what is in a file or folder: fields, types, ranges, missing values, classes");
  command->add_option("path", flags->path, ".npy, .npz, CSV, JSON lines, IDX or images")
      ->required()
      ->type_name("");
  command
      ->add_option("--target", flags->target,
                   "the field to learn, or a file that holds it (default: one named target, label, "
                   "class or y, else a table's last column)")
      ->type_name("NAME");
  command->add_option("--header", flags->header, "whether a table's first line names its columns")
      ->check(CLI::IsMember({"yes", "no"}))
      ->type_name("yes|no");
  command->add_option("--separator", flags->separator, "what separates a table's cells; or tab")
      ->type_name("C");
  command
      ->add_option("--category", flags->categories,
                   "read this column as a category, whatever it holds; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->add_option("--text", flags->texts, "read this column as texts; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->add_option("--image-size", flags->size, "resize images to this")->type_name("WxH");
  command->add_option("--channels", flags->channels, "turn images to grey or colour")
      ->check(CLI::IsMember({"grey", "colour"}))
      ->type_name("grey|colour");
  command
      ->add_option("--dtype", flags->dtype,
                   "of a file of nothing but numbers: fp32, int16, '>fp64' for big-endian")
      ->type_name("NAME");
  command
      ->add_option("--target-dtype", flags->target_dtype,
                   "of a target file of nothing but numbers, one a sample")
      ->type_name("NAME");
  command->add_option("--shape", flags->shape, "of a sample in such a file, as in 3,32,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(range(1, 1e9))
      ->type_name("N,N");
  command->add_flag("--checksums", flags->checksums, "SHA-256 of every field, in the JSON");
  command
      ->add_option("--write-config", flags->config,
                   "write a config here that `ridgeline train` takes at once; - is stdout")
      ->type_name("FILE");
  action.files.writes(*command, "--write-config", flags->config,
                      begins_with({"# Written by `ridgeline data describe`"}));
  action.files.reads(*command, "path", flags->path);
  action.files.reads(*command, "--target", flags->target);
  declare_json(*command, action, flags->json);
  command->footer(
      "Examples:\n"
      "  ridgeline data describe house_prices.csv --target price\n"
      "  ridgeline data describe house_prices.csv --target price --write-config net.toml\n"
      "  ridgeline data describe photos --image-size 64x64\n"
      "  ridgeline data describe x.npy --target y.npy --json -\n"
      "  ridgeline data describe measured.bin --dtype fp32 --shape 28");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      action.files.check();
      return run_describe(*flags);
    };
  });
}

}  // namespace ridgeline::cli
