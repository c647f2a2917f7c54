#include "plait/mesh/mesh.h"

namespace plait {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (auto& a : axes_) {
    PLAIT_CHECK(a.size >= 1, "axis {} of size {}", a.name, a.size);
    world_ = checked_mul(world_, a.size, "mesh");
  }
}

Coords Mesh::coords(i64 rank) const {
  Coords c(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    c[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return c;
}

i64 Mesh::rank(const Coords& c) const {
  i64 r = 0;
  for (size_t i = 0; i < axes_.size(); i++) r = r * axes_[i].size + c[i];
  return r;
}

std::vector<i64> Mesh::group(i64 of, const std::vector<bool>& along) const {
  std::vector<i64> ranks;
  Coords mine = coords(of);
  for (i64 r = 0; r < world_; r++) {
    Coords c = coords(r);
    bool in = true;
    for (size_t a = 0; a < c.size(); a++) in &= along[a] || c[a] == mine[a];
    if (in) ranks.push_back(r);
  }
  return ranks;
}

std::string Mesh::describe(i64 rank) const {
  std::string s;
  Coords c = coords(rank);
  for (size_t a = 0; a < c.size(); a++) s += (s.empty() ? "" : " ") + fmt::format("{}={}", axes_[a].name, c[a]);
  return s.empty() ? "rank 0" : s;
}

}  // namespace plait
