// Products with Q8_0 weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(q8_0, ft::brick::Q8_0)
FT_LINEAR_PREFILL(q8_0, ft::linear::Bricks16<ft::brick::Q8_0>)
