#pragma once

#include <filesystem>

#include "ridgeline/prof/page.h"
#include "ridgeline/prof/roofline.h"

namespace ridgeline::engine {

struct Profile;

// Writes report.html, roofline.svg and trace.json of a profile.
void write_report(const Profile& profile, const std::filesystem::path& folder);

// Returns the kernels of a profile under its ceilings, which it must have.
prof::Roofline roofline_of(const Profile& profile);

// Sections that several pages share.
void add_environment(prof::Page& page, const std::string& machine);
void write_page(const prof::Page& page, const std::filesystem::path& folder);
// Throws Error(io) if the page could not be written: call it before the work, not after it.
void check_page(const std::filesystem::path& folder);

}  // namespace ridgeline::engine
