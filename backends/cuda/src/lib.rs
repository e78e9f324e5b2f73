//! The driver for NVIDIA GPUs.
//!
//! The CUDA driver library is looked for when devices are first asked for, never at
//! link time: a program with this crate in it starts on any machine, and where there
//! is no library, no device, or a broken installation, [`CudaDriver`] lists no devices
//! and says why in [`problems`](foretoken::device::Driver::problems).
//!
//! - `api`: the library's functions, resolved once (unsafe code is here, in `calls`, `launch` and `device`);
//! - `calls`: the same as checked calls, behind a trait that tests can fake;
//! - `facts`: what a device says of itself, its score, which code it can run;
//! - `problem`: what can be wrong, and what to do about it;
//! - `surroundings`: environment variables and device nodes that explain a failure;
//! - `survey`: all of it put together;
//! - `driver`: the engine's seam, as far as finding devices goes;
//! - `device`: an open device, its streams, graphs and weights;
//! - `memory`: device memory, as the engine's buffers and as operands of kernels;
//! - `launch`: kernels with their arguments; `launch_fused`: two operations in one launch;
//! - `ops`: for each operation, its checks and its kernels.
//!
//! Kernels are embedded by the feature `kernels`, which needs nvcc.
//!
//! The crate for AMD GPUs mirrors these files one by one.

mod api;
mod calls;
mod device;
mod driver;
mod facts;
mod launch;
mod launch_fused;
mod memory;
mod ops;
mod problem;
mod surroundings;
mod survey;

pub use driver::{CudaDriver, CudaOptions};
