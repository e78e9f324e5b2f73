//! Token trees on the CPU driver: ten thousand small ones against brute force, and
//! the values in device memory that must fail a launch.

mod builder;
mod property;
mod refusals;
