//! The way through the C interface, with a library of ours in the driver's place. It
//! has to be in place when a process starts, so each case runs this program again.
#![cfg(target_os = "linux")]
// A child process tells its parent what it saw.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::Command;

use foretoken::device::Driver;
use foretoken_cuda::CudaDriver;

/// Set for the child process only.
const CHILD: &str = "FORETOKEN_TEST_CHILD";

/// Looks twice, so that a context left retained would show, and prints what it saw.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let driver = CudaDriver::new();
    let first = driver.devices().unwrap();
    assert_eq!(driver.devices().unwrap(), first);
    println!("version {:?}", driver.driver_version());
    for d in first {
        let (free, total) = (d.memory_free >> 30, d.memory_total >> 30);
        let features = d.features.join(" ");
        println!("{} {} {} {} {free} {total} {features}", d.index, d.name, d.arch, d.units);
    }
    for problem in driver.problems() {
        println!("problem {problem}");
    }
    println!("open {}", driver.open(0).err().map(|e| e.to_string()).unwrap_or_default());
}

/// What a child says that finds the fake driver in `folder`.
fn look(folder: &Path, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1");
    command.env("LD_LIBRARY_PATH", folder).env_remove("CUDA_VISIBLE_DEVICES");
    command.env_remove("FORETOKEN_FORCE_PTX");
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Compiles a C source as `folder/libcuda.so`, the first name that is looked for.
fn compile(source: &Path, folder: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libcuda.so")).arg(source);
    assert!(cc.status().unwrap().success());
}

#[test]
fn devices_are_read_through_the_driver_and_failures_are_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver.c");
    compile(&source, folder.path());

    let said = look(folder.path(), &[]);
    assert!(said.contains("version Some(\"13.0\")"), "{said}");
    assert!(said.contains("0 Fake H200 sm_90 132 100 140 cooperative_launch"), "{said}");
    assert!(said.contains("1 Fake Thor sm_110 20 101 128 integrated cooperative"), "{said}");
    let unused = "problem cuda:1 (Fake Thor, sm_110) cannot be used";
    let (refused, missing) =
        ("open this build has no cuda kernels for sm_90", "has no function cuMemAlloc_v2");
    // This library knows only how to list devices.
    let loaded = CudaDriver::new().architectures().contains(&"90a");
    assert_eq!((said.contains(refused), said.contains(missing)), (!loaded, loaded), "{said}");
    assert!(loaded || said.contains(unused), "{said}");

    let said = look(folder.path(), &[("FORETOKEN_FORCE_PTX", "61")]);
    assert!(said.contains(unused) && said.contains(refused), "{said}");

    // Older than the kernels.
    let said = look(folder.path(), &[("FAKE_VERSION", "12080")]);
    assert!(said.contains("version Some(\"12.8\")"), "{said}");
    let old = "CUDA 12.8, older than 13.0: update it";
    let opening = said.lines().any(|line| line.starts_with("open ") && line.contains(old));
    assert_eq!(opening, loaded, "{said}");

    let said = look(folder.path(), &[("FAKE_BAD", "0"), ("CUDA_VISIBLE_DEVICES", "0,1")]);
    assert!(said.contains("cuda:0 is left out: cuDeviceGetAttribute failed: error 101"), "{said}");
    assert!(said.contains("1 Fake Thor") && said.contains("CUDA_VISIBLE_DEVICES=0,1"), "{said}");
    assert!(said.contains("open no device 'cuda:0' here; available: cuda:1"), "{said}");

    let said = look(folder.path(), &[("FAKE_INIT", "803")]);
    let words = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, system has unsupported display driver";
    assert!(said.contains(&format!("problem cuInit failed: {words}")), "{said}");
    assert!(!said.contains("Fake"), "{said}");

    // A status that no header of ours knows.
    let said = look(folder.path(), &[("FAKE_INIT", "54321")]);
    assert!(said.contains("problem cuInit failed: error 54321"), "{said}");
}

#[test]
fn a_library_of_another_kind_is_a_problem_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("other.c");
    std::fs::write(&source, "int cuInit(unsigned flags) { return (int)flags; }\n").unwrap();
    compile(&source, folder.path());
    let said = look(folder.path(), &[]);
    assert!(said.contains("library has no function cuDriverGetVersion"), "{said}");
    assert!(said.contains("version None"), "{said}");
}
