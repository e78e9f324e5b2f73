//! Has the kernels compiled, and writes down what came of it for `src/lib.rs`.

// Cargo reads what a build script prints.
#![allow(clippy::print_stdout)]

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_build::BuildFault;
use foretoken_build::cuda::{Plan, VARIABLES};

fn main() -> ExitCode {
    for watched in ["build.rs", "src", "include"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    for variable in VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            if let BuildFault::Command { output, .. } = &fault {
                println!("{output}");
                for line in output.lines().filter(|line| line.contains("error")) {
                    println!("cargo::error={line}");
                }
            }
            println!("cargo::error={fault}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), BuildFault> {
    // Cargo sets both.
    let folder = |name| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let plan = Plan { folder: folder("CARGO_MANIFEST_DIR"), out: folder("OUT_DIR") };
    if env::var_os("CARGO_FEATURE_EMBED").is_some() {
        plan.run(&|name| env::var_os(name))
    } else {
        plan.nothing()
    }
}
