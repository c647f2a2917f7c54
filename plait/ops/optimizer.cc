// The optimizer's step, elementwise and in place: SGD, and AdamW (Loshchilov, Hutter 2019) as three ops, one a state.
// A gradient is the sum over tokens; `scale` brings it to a mean and clips it (clip_scale).
#include "plait/graph/graph.h"

namespace plait {

namespace {

const Registry kSgd{Op{
    .name = "sgd",
    .doc = "w, gradient, scale, rate -> w - rate * (gradient * scale)",
    .rule = "",
    .elem = {Elem::as_first},
    .elementwise = true,
    .flops_per_point = 3,
    .examples = {"a b, a b, z, z -> a b"},
}};

const Registry kAdamwM{Op{
    .name = "adamw_m",
    .doc = "m, gradient, scale -> beta1 m + (1 - beta1) gradient scale; attribute beta1",
    .rule = "",
    .elem = {Elem::as_first},
    .elementwise = true,
    .flops_per_point = 4,
    .examples = {"a b, a b, z -> a b"},
    .attributes = {{"beta1", 0.9}},
}};

const Registry kAdamwV{Op{
    .name = "adamw_v",
    .doc = "v, gradient, scale -> beta2 v + (1 - beta2) (gradient scale)^2; attribute beta2",
    .rule = "",
    .elem = {Elem::as_first},
    .elementwise = true,
    .flops_per_point = 5,
    .roles = {{0, Role::positive}},
    .examples = {"a b, a b, z -> a b"},
    .attributes = {{"beta2", 0.95}},
}};

const Registry kAdamwW{Op{
    .name = "adamw_w",
    .doc = "w, m, v, rate, step (from 1) -> w - rate * (m^ / (sqrt(v^) + eps) + decay w); attributes beta1, beta2, "
           "eps, decay",
    .rule = "",
    .elem = {Elem::as_first},
    .elementwise = true,
    .flops_per_point = 9,
    .roles = {{2, Role::positive}, {4, Role::positive}},
    .examples = {"a b, a b, a b, z, z -> a b"},
    .attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}},
}};

const Registry kSumSquares{Op{
    .name = "sum_squares",
    .doc = "digits of the sum of x^2 over all elements (base/exact_squares.h), by a rule of the node (\"a b -> q\")",
    .rule = "",
    .whole = "q",
    .out = {Type::sum},
    .element_leaves = true,
    .flops_per_point = 2,
    .examples = {"v d -> q", "n h d -> q", "d -> q"},
}};

const Registry kGradientNorm{Op{
    .name = "gradient_norm",
    .doc = "digits of a sum of squares -> its root, rounded once",
    .rule = "q -> o",
    .whole = "q",
    .takes_sums = true,
    .roles = {{0, Role::positive}},
}};

const Registry kClipScale{Op{
    .name = "clip_scale",
    .doc = "norm of the mean gradient, count -> what makes the sum a mean of norm <= max_norm (0: any)",
    .rule = "",
    .elementwise = true,
    .roles = {{0, Role::positive}, {1, Role::positive}},
    .examples = {"z, z -> z"},
}};

const Registry kMean{Op{
    .name = "mean",
    .doc = "sum, count -> sum / count",
    .rule = "",
    .elementwise = true,
    .roles = {{1, Role::positive}},
    .examples = {"z, z -> z"},
}};

}  // namespace

}  // namespace plait
