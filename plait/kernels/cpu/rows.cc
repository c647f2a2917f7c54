#include "plait/kernels/cpu/rows.h"

namespace plait::kernels {

Result<Walk> walk_of(const Args& a) {
  const Term& dims = a.out_terms[0];
  std::vector<const View*> views{&a.out[0]};
  std::vector<const Term*> terms{&dims};
  for (size_t i = 0; i < a.in.size(); i++) {
    views.push_back(&a.in[i]);
    terms.push_back(&a.in_terms[i]);
  }
  Walk w;
  w.operands = views.size();
  if (w.operands > Walk::kOperands) return Result<Walk>::no("more than two operands");

  struct Dim {
    i64 size;
    i64 stride[Walk::kOperands];
  };
  std::vector<Dim> walked;
  for (const std::string& name : dims) walked.push_back({a.range(name).size(), {}});
  for (size_t k = 0; k < views.size(); k++) {
    const View& v = *views[k];
    if (v.layout != Layout::rows || is_quantized(v.dtype)) return Result<Walk>::no("operands that are not plain rows");
    PLAIT_CHECK(v.box.size() == terms[k]->size(), "{}: operand {} has {} dims", a.op, k, v.box.size());
    w.operand[k].bytes = size_of(v.dtype);
    w.operand[k].data = v.as<std::byte>();
    for (size_t d = 0; d < v.box.size(); d++) {
      auto at = std::find(dims.begin(), dims.end(), (*terms[k])[d]);
      if (at == dims.end()) return Result<Walk>::no("an operand with a dim that the result has not");
      Range r = a.range(*at);
      PLAIT_CHECK(v.box[d].contains(r), "{}: operand {} holds {} of {}, wanted {}", a.op, k, to_string(v.box[d]), *at,
                  to_string(r));
      i64 stride = v.stride(d) * w.operand[k].bytes;
      walked[static_cast<size_t>(at - dims.begin())].stride[k] = stride;
      if (!r.empty()) w.operand[k].data += (r.begin - v.box[d].begin) * stride;
    }
  }
  // Merge, from the inside, dims that lie behind each other in every operand.
  std::vector<Dim> merged;
  for (auto d = walked.rbegin(); d != walked.rend(); d++) {
    if (d->size == 1) continue;
    bool joins = true;
    for (size_t k = 0; k < views.size(); k++)
      joins &= merged.empty() ? d->stride[k] == w.operand[k].bytes
                              : d->stride[k] == merged.back().stride[k] * merged.back().size;
    if (merged.empty() && !joins) {  // single elements are rows of one
      merged.push_back({1, {}});
      for (size_t k = 0; k < views.size(); k++) merged[0].stride[k] = w.operand[k].bytes;
    }
    if (joins && !merged.empty())
      merged.back().size *= d->size;
    else
      merged.push_back(*d);
  }
  if (merged.size() > Walk::kOuter + 1) return Result<Walk>::no("too many dims that are not contiguous");
  for (size_t i = 0; i < merged.size(); i++) {
    if (i == 0) {
      w.inner = merged[0].size;
      continue;
    }
    size_t o = Walk::kOuter - i;
    w.size[o] = merged[i].size;
    for (size_t k = 0; k < views.size(); k++) w.operand[k].stride[o] = merged[i].stride[k];
  }
  w.rows = w.size[0] * w.size[1] * w.size[2];
  return w;
}

}  // namespace plait::kernels
