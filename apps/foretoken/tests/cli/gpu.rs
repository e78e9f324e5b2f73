//! GPU drivers as this build and this machine have them.

use serde_json::Value;

#[cfg(all(feature = "hip", target_os = "linux"))]
use crate::support::PASSED_OVER;
#[cfg(all(any(feature = "cuda", feature = "hip"), target_os = "linux"))]
use crate::support::command;
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

/// With a library of ours in the NVIDIA driver's place: one clear line, exit code 1.
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[test]
fn a_cuda_device_that_cannot_be_used_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../backends/cuda/tests");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(folder.path().join("libcuda.so"));
    cc.args(["fake_driver.c", "fake_work.c"].map(|name| format!("{sources}/{name}")));
    assert!(cc.status().unwrap().success());

    let model = nano("nano-code-Q4_K_M.gguf");
    let refused = |extra: &[&str], settings: &[(&str, &str)], words: &str| {
        let args = ["generate", "-m", model.to_str().unwrap(), "--device", "cuda:0", "-c", "512"];
        let mut command = command(&[&args[..], &["--prompt", "x"], extra].concat());
        command.env("LD_LIBRARY_PATH", folder.path()).env_remove("FORETOKEN_FORCE_PTX");
        command.env_remove("CUDA_VISIBLE_DEVICES").envs(settings.iter().copied());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.starts_with("error: ") && said.contains(words), "{said}");
    };
    let missing = "no device 'cuda:0' here";
    refused(&[], &[("FAKE_INIT", "100")], missing);
    refused(&[], &[("FORETOKEN_FORCE_PTX", "61")], "no cuda kernels for sm_90");
    let report = run(&["doctor", "--json"]).json();
    // Past the kernels' own checks the build has to have code for the stand-in, an sm_90.
    if !lines(&report["cuda"]["architectures"]).contains(&"90a") {
        println!("skipped: the stand-in is an sm_90, and there are no kernels for it");
        return;
    }
    refused(&[], &[("FAKE_VERSION", "12080")], "CUDA 12.8, older than 13.0: update it");
    refused(&["--device-memory", "8MiB"], &[], "free");
    // The plan asks kernels what they share, and the stand-in has none.
    refused(&[], &[], "cuModuleGetFunction");
    refused(&[], &[("FAKE_HOST_ALLOC", "46")], "cuMemHostAlloc");
    // Two of a kind: what is copied from one to the other is looked at.
    for (torn, problem) in [(None, None), (Some("17"), Some("arrived wrong at byte 16"))] {
        let told = |args: &[&str]| {
            let mut command = command(args);
            command.env("LD_LIBRARY_PATH", folder.path()).env("FAKE_TWINS", "1");
            command.env_remove("FORETOKEN_FORCE_PTX").env_remove("CUDA_VISIBLE_DEVICES");
            let output = command.envs(torn.map(|bytes| ("FAKE_TORN", bytes))).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let devices: serde_json::Value =
            serde_json::from_str(&told(&["devices", "--json"])).unwrap();
        let first = devices.as_array().unwrap().iter().find(|d| d["id"] == "cuda:0").unwrap();
        let (peers, peer) = (first["peers"].as_array().unwrap(), &first["peers"][0]);
        assert_eq!((peers.len(), &peer["id"]), (1, &"cuda:1".into()));
        assert_eq!(peer["verified"], problem.is_none());
        let words = peer["problem"].as_str();
        assert_eq!(words.map(|said| said.contains(problem.unwrap())), problem.map(|_| true));
        for command in ["devices", "doctor"] {
            let said = told(&[command]).replace("\n", " ").replace("        ", "");
            let line = problem.unwrap_or("between cuda:0 and cuda:1 were verified");
            let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(line), "{said}");
        }
    }
}
