// Where a model lies: a path, or a name in a cache on this machine. Nothing is fetched.
//
// A name is looked for, in this order, as
//   ${XDG_CACHE_HOME:-~/.cache}/plait/models/NAME            a file or a folder
//   ${XDG_CACHE_HOME:-~/.cache}/plait/models/NAME.gguf
//   ${XDG_CACHE_HOME:-~/.cache}/plait/models/NAME.*.gguf     when there is exactly one; the files of a split model
//                                                            (also NAME-00001-of-0000N.gguf) are one
//   ${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}/hub}/models--ORG--NAME/snapshots/*
//                                                            for ORG/NAME: of refs/main, else the newest
#pragma once
#include <vector>

#include "plait/base/base.h"

namespace plait::io {

/// The path of an existing file or folder.
///   errors  bad_file: nothing there (every place that was looked at is listed), or several
std::string find_model(const std::string& path_or_name);

/// Files, sorted; of each split model (gguf.h) the first part that is among them.
std::vector<std::string> without_further_parts(std::vector<std::string> files);

}  // namespace plait::io
