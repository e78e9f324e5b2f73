// Products with F16 weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(f16, ft::brick::Scalars<false>)
FT_LINEAR_PREFILL(f16, ft::linear::Bricks16<ft::brick::Scalars<false>>)
