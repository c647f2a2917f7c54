// The configuration of a GGUF model under the key names of Hugging Face's config.json.
//
// llama, gpt2 and gemma3 are translated in full (a llama with experts is a mixtral). Any other architecture keeps its
// name as model_type, with the keys that all architectures share, for the models room to accept or refuse. Absent keys
// stay absent; what the file says in another type is an error. A float is given as the shortest decimal that reads back
// as the same f32 (1e-05, not 9.999999747378752e-06).
//
// Converted Llama 3 models carry `rope_freqs.weight`, a divisor for each rotary frequency: it becomes the llama3
// rope_scaling that gives these divisors, or, where none of the published ones does, the form of our own
// `{"rope_type": "factors", "factors": [H/2 numbers]}`.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "plait/io/gguf.h"

namespace plait::io {

/// errors  bad_file: no general.architecture, a key of another type, key and value heads of unlike width
nlohmann::json config_of(const GgufFile& file);

}  // namespace plait::io
