#include "plait/exec/run_sharded.h"

#include <algorithm>
#include <cstring>

#include "plait/comm/local/run_ranks.h"
#include "plait/tensor/copy.h"
#include "plait/tensor/element.h"

namespace plait {

ShardedRun run_sharded(std::shared_ptr<const ShardedGraph> s, const std::map<std::string, View>& named,
                       const Symbols& symbols, const ExecutorOptions& options) {
  const Mesh mesh = s->plan.mesh();
  comm::LocalWorld world(mesh.world(), {.deadline_s = 20, .slot_bytes = 4096, .mail_bytes = 4096});
  auto axes = communicating_axes(*s);
  std::vector<std::map<std::vector<bool>, i64>> groups(static_cast<size_t>(mesh.world()));
  for (i64 r = 0; r < mesh.world(); r++)
    for (auto& along : axes) groups[static_cast<size_t>(r)][along] = world.add_group(mesh.group(r, along));
  ShardedRun run;
  run.made.resize(static_cast<size_t>(mesh.world()));
  for (i64 r = 0; r < mesh.world(); r++) run.programs.push_back(partition(s, r));
  comm::run_ranks(world, [&](i64 rank) {
    kernels::flush_denormals();
    const auto r = static_cast<size_t>(rank);
    std::map<std::vector<bool>, std::unique_ptr<comm::Communicator>> comms;
    for (auto& [along, g] : groups[r]) comms.emplace(along, world.join(g, rank));
    Executor e(run.programs[r], {symbols}, options, [&](const std::vector<bool>& along) {
      auto it = comms.find(along);
      return it == comms.end() ? nullptr : it->second.get();
    });
    e.bind(symbols);
    for (auto& [name, v] : s->graph.named) {
      const View& whole = named.at(name);
      const bool state = s->graph.at(v).kind == Kind::state;
      View part = state ? e.state(name) : e.input_part(name);
      PLAIT_CHECK(whole.dtype == part.dtype && part.layout == Layout::rows, "{}: fed {}, want {} in rows", name,
                  name_of(whole.dtype), name_of(part.dtype));
      copy_box(whole, part, part.box);
    }
    e.watch([&](const Call&, ValueId v, const View& view) { run.made[r].insert_or_assign(v, copy_of(view)); });
    kernels::Team team(1);
    kernels::Context context{team};
    e.run(context);
  });
  return run;
}

namespace {

template <class T>
void join_element(Type type, T* to, T x, bool first) {
  *to = first ? x : type == Type::max ? std::max(*to, x) : static_cast<T>(*to + x);
}

}  // namespace

Tensor join_parts(const ShardedGraph& s, ValueId v, const Symbols& symbols,
                  const std::function<const View*(i64 rank)>& part_of) {
  Sizes sizes = bound_sizes(s.graph, symbols);
  Binding b(s.plan, sizes);
  const Value& x = s.logical(v);
  Box box;
  for (char d : x.dims) box.push_back({0, sizes.size(d)});
  Tensor out(x.dtype, box);
  for (auto& m : reshard(b, s.of(v), Placement(s.plan.axes.size()), x.dims, 0)) {
    std::vector<bool> written(static_cast<size_t>(out.elements()), false);
    for (i64 from : m.from) {
      const View* part = part_of(from);
      if (part == nullptr) continue;
      for_each(m.into & part->box, [&](const std::vector<i64>& i) {
        const i64 a = part->at(i), o = out.at(i);
        const bool first = !written[static_cast<size_t>(o)];
        written[static_cast<size_t>(o)] = true;
        switch (x.dtype) {
          case DType::f32:
            return join_element(x.type, out.as<float>() + o, part->as<float>()[a], first);
          case DType::f64:
            return join_element(x.type, out.as<double>() + o, part->as<double>()[a], first);
          case DType::i64:
            return join_element(x.type, out.as<i64>() + o, part->as<i64>()[a], first);
          case DType::i128:
            return join_element(x.type, out.as<i128>() + o, part->as<i128>()[a], first);
          case DType::i32:
            return join_element(x.type, out.as<std::int32_t>() + o, part->as<std::int32_t>()[a], first);
          case DType::bf16:
            PLAIT_CHECK(first, "a sum of bf16 parts");
            out.as<bf16>()[o] = part->as<bf16>()[a];
            return;
          default:
            PLAIT_CHECK(false, "parts of {}", name_of(x.dtype));
        }
      });
    }
  }
  return out;
}

Tensor ShardedRun::whole(const ShardedGraph& s, ValueId v, const Symbols& symbols) const {
  return join_parts(s, v, symbols, [&](i64 rank) -> const View* {
    auto it = made[static_cast<size_t>(rank)].find(v);
    return it == made[static_cast<size_t>(rank)].end() ? nullptr : &it->second;
  });
}

std::string first_difference(const ShardedGraph& s, const ShardedRun& run,
                             const std::function<const View*(ValueId)>& want) {
  for (size_t r = 0; r < run.made.size(); r++)
    for (auto& c : run.programs[r].calls) {
      for (ValueId v : run.programs[r].makes(c)) {
        auto it = run.made[r].find(v);
        if (it == run.made[r].end()) continue;
        bool complete = true;
        for (auto& a : s.of(v)) complete &= a.join == Joined::copy;
        const View* whole = complete ? want(s.origin[static_cast<size_t>(v)]) : nullptr;
        if (whole == nullptr) continue;
        const View& part = it->second;
        std::string found;
        for_each(part.box, [&](const std::vector<i64>& x) {
          if (!found.empty() || same_bits(part, part.at(x), *whole, whole->at(x))) return;
          found = fmt::format("rank {}: {} at [{}]", r, run.programs[r].label(c), fmt::join(x, ", "));
        });
        if (!found.empty()) return found;
      }
    }
  return {};
}

}  // namespace plait
