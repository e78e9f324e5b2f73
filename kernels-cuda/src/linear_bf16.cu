// Products with BF16 weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(bf16, ft::brick::Scalars<true>)
FT_LINEAR_PREFILL(bf16, ft::linear::Bricks16<ft::brick::Scalars<true>>)
