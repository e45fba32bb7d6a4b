#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/nn/safetensors.h"

// Checksums in the metadata of the files that we write, each a CRC-32 as eight hexadecimal digits:
//   ridgeline.crc32         the eight bytes of the length and the header, with these digits zero
//   ridgeline.crc32.<name>  the bytes of one tensor
// Other programs copy our metadata, checksums included, into files of their own with new weights.
// To tell these from damaged files, our headers begin with kOwnHead, which JSON allows and no other
// writer produces; with a flipped bit in it the header is no longer JSON.
namespace ridgeline::nn {

inline constexpr std::string_view kOwnHead = "{       ";  // then "__metadata__"

// Whether to_safetensors made this header; its beginning is enough to tell.
inline bool has_own_head(std::string_view json) { return json.starts_with(kOwnHead); }

// Adds the checksums of `tensors` and, as zeros, the header's own.
void add_checksums(Metadata& metadata, std::span<const TensorEntry> tensors);

// Replaces the zeros by the checksum. `head` is the length and the header.
void write_header_checksum(std::span<std::byte> head);

// Throws DamagedFile unless `head`, which has_own_head, is what write_header_checksum made.
void check_header(std::span<const std::byte> head, const std::string& origin);

// Throws a DamagedFile that names the first tensor whose bytes have changed.
void check_tensor_bytes(std::span<const TensorEntry> tensors, const Metadata& metadata,
                        const std::string& origin);

void remove_checksums(Metadata& metadata);

}  // namespace ridgeline::nn
