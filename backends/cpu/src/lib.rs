//! The CPU driver.
