// Products with Q6_K weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(q6_k, ft::brick::Q6_K)
FT_LINEAR_PREFILL(q6_k, ft::linear::Bricks16<ft::brick::Q6_K>)
