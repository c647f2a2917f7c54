// The configuration of a GGUF model under the key names of Hugging Face's config.json.
//
// llama and gpt2 are translated in full (a llama with experts is a mixtral). Any other architecture keeps its name as
// model_type, with the keys that all architectures share, for the models room to accept or refuse. Absent keys stay
// absent; what the file says in another type is an error. A float is given as the shortest decimal that reads back as
// the same f32 (1e-05, not 9.999999747378752e-06).
//
// Beyond Hugging Face: `rope_scaling: {"rope_type": "factors", "factors": [H/2 numbers]}` when the file carries
// `rope_freqs.weight` (converted Llama 3.1 models do): rotary frequency i is divided by factors[i].
#pragma once
#include <nlohmann/json.hpp>

#include "plait/io/gguf.h"

namespace plait::io {

/// errors  bad_file: no general.architecture, a key of another type, key and value heads of unlike width
nlohmann::json config_of(const GgufFile& file);

}  // namespace plait::io
