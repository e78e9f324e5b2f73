//! GPU drivers as this build and this machine have them.

use serde_json::Value;

#[cfg(all(feature = "hip", target_os = "linux"))]
use crate::support::{PASSED_OVER, command};
use crate::support::{nano, run};

/// Whether the driver is in this build.
fn built(driver: &str) -> bool {
    let drivers = [("cuda", cfg!(feature = "cuda")), ("hip", cfg!(feature = "hip"))];
    drivers.contains(&(driver, true))
}

fn lines(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn doctor_tells_what_is_built_in_and_why_nothing_is_found() {
    let report = run(&["doctor", "--json"]).json();
    for driver in ["cuda", "hip"] {
        let report = &report[driver];
        assert_eq!(report["built"], built(driver), "{driver}");
        let problems = lines(&report["problems"]);
        if !built(driver) {
            assert_eq!(problems, [format!("not in this build; build with --features {driver}")]);
        }
        // Kernels have a hash; a build with CUDA has kernels.
        let kernels = !report["architectures"].as_array().unwrap().is_empty();
        assert_eq!(report["kernels"].as_str().map(str::len), kernels.then_some(32), "{driver}");
        assert!(kernels || driver != "cuda" || !built(driver));
        // No devices without a reason; no driver without a library.
        if report["devices"].as_array().unwrap().is_empty() {
            assert!(!problems.is_empty(), "{driver}");
        } else {
            assert!(report["driver"].is_string(), "{driver}");
        }
    }
}

#[test]
fn devices_and_doctor_agree() {
    let devices = run(&["devices", "--json"]).json();
    let report = run(&["doctor", "--json"]).json();
    for driver in ["cuda", "hip"] {
        let ids = |list: &Value| -> Vec<Value> {
            let devices = list.as_array().unwrap().iter();
            devices.filter(|d| d["driver"] == driver).map(|d| d["id"].clone()).collect()
        };
        assert_eq!(ids(&devices), ids(&report[driver]["devices"]));
    }
}

#[test]
fn a_device_that_cannot_be_opened_is_named_with_the_reason() {
    let model = nano("nano-code-Q4_K_M.gguf");
    for driver in ["cuda", "hip"] {
        let device = format!("{driver}:0");
        let args = ["generate", "--model", model.to_str().unwrap(), "--device", &device];
        let failure = run(&[&args[..], &["--prompt", "x"]].concat()).failure();
        assert!(failure.contains(driver), "{failure}");
    }
}

/// With a library of ours in the HIP runtime's place, which claims two devices.
#[cfg(all(feature = "hip", target_os = "linux"))]
#[test]
fn devices_without_kernels_are_passed_over_aloud_and_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("lib/libamdhip64.so.7");
    std::fs::create_dir(folder.path().join("lib")).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../backends/hip/tests/fake_runtime.c");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", source, "-o"]).arg(&library);
    assert!(cc.status().unwrap().success());

    let model = nano("nano-code-Q4_K_M.gguf");
    let generate = |device: &str| {
        let prompt = ["--prompt", "def f(", "-n", "2", "--device", device];
        let args = ["generate", "--json", "--model", model.to_str().unwrap()];
        let mut command = command(&[&args[..], &prompt].concat());
        let output = command.env("ROCM_PATH", folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = generate("auto");
    assert_eq!(code, Some(0), "{said}");
    for device in ["hip:0 (Fake 7900, gfx1100)", "hip:1 (Fake 8060S, gfx1151)"] {
        assert!(said.contains(&format!("{device}{PASSED_OVER}cpu:0\n")), "{said}");
    }
    let (code, said) = generate("hip:1");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("error: this build has no hip kernels for gfx1151"), "{said}");
}
