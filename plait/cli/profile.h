// Where the time of a step goes, kernel by kernel, and what share of the machine's limit each reaches.
//
// A phase (a prefill, or many decode steps) is recorded call by call. What runs in every layer is one row; its time is
// the median over the steps of all its calls in a step, so that single disturbances do not count, and of many ranks
// the mean. Beside stand the bytes and flops that the row has to do at least (exec/cost.h) and the time in which a rank
// could do them: the longer of its bytes at its share of the bandwidth and its flops at the peak of the unit that does
// them. Bytes that lie in a cache may come faster than that.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "plait/cli/machine.h"
#include "plait/serve/engine.h"

namespace plait::cli {

/// What one rank can do.
struct RankLimits {
  double bytes_per_s = 0;
  Peaks peaks;
};

struct ProfileRow {
  enum class Kind : std::uint8_t { kernel, communication, waiting, rest };
  Kind kind = Kind::kernel;
  std::string name, of, type;      // "gate + up + silu_mul", "gate", the weights' type
  i64 calls = 0;                   // in a step
  double s = 0;                    // in a step
  double least_s = 0, most_s = 0;  // of the ranks
  Work work;                       // of a rank
  double share = 0;                // of the step

  /// The least time that the limits allow; 0: unknown.
  double limit_s(const RankLimits& limits) const;
};

/// What a call, or calls that one kernel did in one go, are counted as; calls of all layers alike.
struct CallKey {
  ProfileRow::Kind kind = ProfileRow::Kind::kernel;
  std::string name, of, type;
  auto operator<=>(const CallKey&) const = default;
};
CallKey key_of(const plait::Program& p, const Executor::Item& item);

/// What a rank did in one phase.
class PhaseProfile {
 public:
  /// cached: positions of the cache of each sequence that are filled when the first step begins.
  PhaseProfile(serve::Session& s, i64 cached, i64 sequences);
  ~PhaseProfile();
  PhaseProfile(const PhaseProfile&) = delete;
  PhaseProfile& operator=(const PhaseProfile&) = delete;
  /// A step has ended, which took so long in all; of that choosing a token, and agreeing on it, waiting included.
  void end_step(double wall_s, double sample_s, double agree_s, double agree_wait_s);
  /// For another process.
  std::string text();

 private:
  struct Step {
    size_t runs = 0;  // recorded when it ended
    double wall_s = 0, sample_s = 0, agree_s = 0, agree_wait_s = 0;
  };
  serve::Session& session_;
  i64 cached_, sequences_;
  Recording recording_;
  std::vector<Step> steps_;
};

/// The texts of all ranks, of one phase and repeat -> rows, the longest first.
std::vector<ProfileRow> profile_rows(const std::vector<std::string>& ranks);
/// The medians of several repeats.
std::vector<ProfileRow> median_rows(const std::vector<std::vector<ProfileRow>>& repeats);

std::string profile_text(const std::vector<ProfileRow>& rows, const RankLimits& limits, i64 ranks, i64 most_rows);
nlohmann::ordered_json profile_json(const std::vector<ProfileRow>& rows, const RankLimits& limits);

}  // namespace plait::cli
