#pragma once

#include <filesystem>
#include <memory>

#include "ridgeline/engine/train/observer.h"
#include "ridgeline/prof/page.h"

namespace ridgeline::engine {

struct Profile;

// report.html of a run, written to `folder` when it ends: curves, confusions, roofline, timeline,
// plan, environment; trace.json beside it. Throws io at once when the folder cannot be made. The
// curves of a resumed run begin with what `metrics` (metrics.jsonl, or "") holds of it.
std::unique_ptr<TrainObserver> report_observer(const std::filesystem::path& folder,
                                               const std::filesystem::path& metrics);

// For the other ranks of such a run: they take part in the profile that the page shows.
std::unique_ptr<TrainObserver> report_helper();

// The run's timeline as trace-event JSON, written when it ends.
std::unique_ptr<TrainObserver> trace_observer(const std::filesystem::path& file);

// report.html, roofline.svg and trace.json of a profile.
void write_report(const Profile& profile, const std::filesystem::path& folder);

// Sections that several pages share.
void add_environment(prof::Page& page, const std::string& machine);
void write_page(const prof::Page& page, const std::filesystem::path& folder);
// Throws io where it could not be written: known before the work, not after it.
void check_page(const std::filesystem::path& folder);

}  // namespace ridgeline::engine
