//! The driver for AMD GPUs.
//!
//! The HIP runtime is looked for when devices are first asked for, never at link time:
//! a program with this crate in it starts on any machine, and where there is no
//! runtime, no device, or a broken installation, [`HipDriver`] lists no devices and
//! says why in [`problems`](foretoken::device::Driver::problems).
//!
//! - `api`: the library's functions, resolved once (all that is unsafe is here and in `calls`);
//! - `calls`: the same as checked calls, behind a trait that tests can fake;
//! - `facts`: what a device says of itself, its score, which code it can run;
//! - `problem`: what can be wrong, and what to do about it;
//! - `surroundings`: environment variables and device nodes that explain a failure;
//! - `survey`: all of it put together;
//! - `driver`: the engine's seam.
//!
//! The crate for NVIDIA GPUs mirrors these files one by one.

mod api;
mod calls;
mod driver;
mod facts;
mod problem;
mod surroundings;
mod survey;

pub use driver::HipDriver;
