// Products with Q4_K weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(q4_k, ft::brick::Q4_K)
FT_LINEAR_PREFILL(q4_k, ft::linear::Bricks16<ft::brick::Q4_K>)
