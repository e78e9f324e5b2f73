// Products with Q8_0 weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(q8_0, ft::fragment::Q8_0, ft::fragment::Q8_0)
FT_LINEAR_PREFILL(q8_0, ft::fragment::Q8_0)
