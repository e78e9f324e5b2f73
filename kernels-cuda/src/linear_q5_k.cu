// Products with Q5_K weights: see linear_bricks.cuh and linear_prefill.cuh.

#include "linear_bricks.cuh"
#include "linear_prefill.cuh"

FT_BRICK_STEPS(q5_k, ft::brick::Q5_K)
FT_LINEAR_PREFILL(q5_k, ft::linear::Bricks16<ft::brick::Q5_K>)
