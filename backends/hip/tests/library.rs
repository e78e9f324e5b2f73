//! The way through the C interface, with a library of ours in the runtime's place. It
//! has to be in place when a process starts, so each case runs this program again.
#![cfg(target_os = "linux")]
// A child process tells its parent what it saw.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::Command;

use foretoken::device::Driver;
use foretoken_hip::HipDriver;

/// Set for the child process only.
const CHILD: &str = "FORETOKEN_TEST_CHILD";

/// Looks twice, so that a device left current would show, and prints what it saw.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let driver = HipDriver::new();
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
    println!("open {}", driver.open(0).err().unwrap());
}

/// What a child says that finds the fake runtime below `folder`.
fn look(folder: &Path, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").env("ROCM_PATH", folder);
    for variable in ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"] {
        command.env_remove(variable);
    }
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Compiles a C source as `folder/lib/libamdhip64.so.7`, the first file looked for.
fn compile(source: &Path, folder: &Path) {
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(folder.join("lib/libamdhip64.so.7")).arg(source);
    assert!(cc.status().unwrap().success());
}

#[test]
fn devices_are_read_through_the_runtime_and_failures_are_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_runtime.c");
    compile(&source, folder.path());

    let said = look(folder.path(), &[]);
    assert!(said.contains("version Some(\"7.0.51831\")"), "{said}");
    assert!(said.contains("0 Fake 7900 gfx1100 96 20 24 cooperative_launch"), "{said}");
    // This one tells no physical units, so those it schedules on are listed.
    assert!(said.contains("1 Fake 8060S gfx1151 20 90 96 integrated cooperative"), "{said}");
    assert!(said.contains("problem hip:1 (Fake 8060S, gfx1151) cannot be used"), "{said}");
    assert!(said.contains("open this build has no hip kernels for gfx1100"), "{said}");

    let settings = [("FAKE_BAD", "0"), ("HSA_OVERRIDE_GFX_VERSION", "11.0.0")];
    let said = look(folder.path(), &settings);
    assert!(said.contains("hip:0 is left out: hipDeviceGetAttribute failed: hipErrorUnknown\n"));
    assert!(said.contains("1 Fake 8060S") && said.contains("=11.0.0 is in force"), "{said}");
    assert!(said.contains("open no device 'hip:0' here; available: hip:1"), "{said}");

    let said = look(folder.path(), &[("FAKE_INIT", "3")]);
    let words = "hipErrorNotInitialized, initialization error";
    assert!(said.contains(&format!("problem hipInit failed: {words}")), "{said}");
    assert!(!said.contains("Fake"), "{said}");
}

#[test]
fn a_library_of_another_kind_is_a_problem_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("other.c");
    std::fs::write(&source, "int hipInit(unsigned flags) { return (int)flags; }\n").unwrap();
    compile(&source, folder.path());
    let said = look(folder.path(), &[]);
    assert!(said.contains("has no function hipRuntimeGetVersion: install ROCm 6"), "{said}");
    assert!(said.contains("version None"), "{said}");
}
