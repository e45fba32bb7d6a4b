#include "ridgeline/data/sets.h"

#include <fmt/ranges.h>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

SetInfo mnist() {
  return {
      .name = "mnist",
      .title = "MNIST handwritten digits, 60000 + 10000 images of 28x28",
      .licence = "none stated with the files",
      .classes = 10,
      .folders = {"mnist", "MNIST", "dataset-mnist"},
      .files =
          {
              {"train-images-idx3-ubyte.gz", 9912422,
               "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
               "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
              {"train-labels-idx1-ubyte.gz", 28881,
               "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
               "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
              {"t10k-images-idx3-ubyte.gz", 1648877,
               "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
               "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
              {"t10k-labels-idx1-ubyte.gz", 4542,
               "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
               "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
          },
      .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                  "https://storage.googleapis.com/cvdf-datasets/mnist"},
  };
}

SetInfo fashion_mnist() {
  return {
      .name = "fashion-mnist",
      .title = "Fashion-MNIST clothing, 60000 + 10000 images of 28x28",
      .licence = "MIT",
      .classes = 10,
      .folders = {"fashion-mnist", "fashion_mnist", "FashionMNIST", "dataset-fashion-mnist"},
      .files =
          {
              {"train-images-idx3-ubyte.gz", 26421880,
               "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
               "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
              {"train-labels-idx1-ubyte.gz", 29515,
               "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
               "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
              {"t10k-images-idx3-ubyte.gz", 4422102,
               "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
               "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
              {"t10k-labels-idx1-ubyte.gz", 5148,
               "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
               "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
          },
      // The second is its authors' own, which has no https; the checksum makes it safe.
      .mirrors = {"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
                  "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"},
  };
}

SetInfo tiny_shakespeare() {
  constexpr const char* kSum = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";
  return {
      .name = "tinyshakespeare",
      .title = "plays of Shakespeare, 1115394 characters of 65 kinds, for language models",
      .licence = "public domain",
      .text = true,
      .classes = 65,
      .folders = {"tinyshakespeare", "tiny-shakespeare", "tiny_shakespeare"},
      .files = {{"input.txt", 1115394, kSum, kSum}},
      .mirrors =
          {"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare"},
  };
}

// No mirror with a stable checksum of the training file is known, so `get` downloads the test file
// only; a part of the training file is accepted under its own name, so that nobody takes it for the
// whole.
SetInfo ag_news() {
  return {
      .name = "ag-news",
      .title = "AG's News, titles and descriptions of four topics, 120000 + 7600 texts",
      .licence = "research and other non-commercial use",
      .records = true,
      .classes = 4,
      .folders = {"ag-news", "ag_news", "ag_news_csv"},
      .files = {{"test.csv", 1857427,
                 "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
                 "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"}},
      .mirrors =
          {"https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"},
      .train_files = {"train.csv", "train_partial.csv"},
      .test_file = "test.csv",
      .text_columns = {"2", "3"},
      .label_column = "1",
      .class_names = {"World", "Sports", "Business", "Sci/Tech"},
      .first_label = 1,
  };
}

// The same files under another name: a network reads an image row by row as a sequence.
SetInfo mnist_rows() {
  SetInfo set = mnist();
  set.name = "mnist-rows";
  set.title = "MNIST, each image as a sequence of 28 rows of 28 pixels";
  set.folders.insert(set.folders.begin(), set.name);
  return set;
}

}  // namespace

const std::vector<SetInfo>& known_sets() {
  static const std::vector<SetInfo> sets{mnist(), fashion_mnist(), tiny_shakespeare(), mnist_rows(),
                                         ag_news()};
  return sets;
}

const SetInfo* find_known_set(std::string_view name) {
  for (const SetInfo& set : known_sets()) {
    if (set.name == name) return &set;
  }
  return nullptr;
}

const SetInfo& set_info(std::string_view name) {
  if (const SetInfo* set = find_known_set(name)) return *set;
  std::vector<std::string_view> names;
  for (const SetInfo& set : known_sets()) names.push_back(set.name);
  const std::string near = nearest(name, names);
  throw_error(ErrorKind::usage, "{} is no known data set; {}known are: {}", quote(name),
              near.empty() ? "" : fmt::format("did you mean '{}'? ", near), fmt::join(names, ", "));
}

}  // namespace ridgeline::data
