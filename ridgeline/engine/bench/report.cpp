#include <fmt/format.h>

#include <cmath>

#include "ridgeline/engine/bench/compare.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/engine/report/page.h"

namespace ridgeline::engine {

void write_bench_report(const std::vector<BenchResult>& results, const BenchComparison& since,
                        const RunConfig& run, const std::filesystem::path& folder) {
  const std::string machine = Machine(run).runtime().fingerprint();
  prof::Page page("Bench", machine);
  prof::HtmlTable table;
  table.head = {"work", "us, least", "us, median", "of the limit", "since the kept results"};
  Chart chart;
  chart.title = "fraction of the limit";
  chart.bars = true;
  chart.x_title = "work, in the table's order";
  chart.series = {{"", {}}};
  for (const BenchResult& result : results) {
    std::string change = "-";
    for (const BenchChange& each : since.changes) {
      if (each.name == result.name) change = fmt::format("{:+.1f} %", 100 * (each.ratio - 1));
    }
    table.rows.push_back(
        {result.name, fmt::format("{:.1f}", result.us_min), fmt::format("{:.1f}", result.us),
         result.limit_fraction > 0 ? fmt::format("{:.0f} %", 100 * result.limit_fraction) : "-",
         change});
    chart.x.push_back(std::to_string(chart.x.size() + 1));
    chart.series[0].y.push_back(result.limit_fraction > 0 ? result.limit_fraction : NAN);
  }
  page.section("Results", prof::table_html(table) +
                              fmt::format("<div class=\"chart\">{}</div>\n", to_svg(chart)));
  add_environment(page, machine);
  write_page(page, folder);
}

}  // namespace ridgeline::engine
