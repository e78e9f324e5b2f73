//! All tests of this file's siblings, on a library of ours in the driver's place. It has
//! to be there when a process starts, so this program is run again.

use std::path::Path;
use std::process::Command;

use foretoken::device::Driver;
use foretoken_cuda::CudaDriver;

/// Set for the processes that find the stand-in.
const CHILD: &str = "FORETOKEN_TEST_CHILD";

/// Runs tests by name with the stand-in in `folder`, and settings for both.
fn run(folder: &Path, tests: &[&str], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(tests).arg("--show-output").env(CHILD, "1");
    command.env("LD_LIBRARY_PATH", folder).env_remove("CUDA_VISIBLE_DEVICES");
    command.env_remove("FORETOKEN_FORCE_PTX").env_remove("FORETOKEN_CUDA_SYNC");
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{settings:?}\n{said}{errors}");
    assert!(!said.contains("skipped:"), "{said}");
    said
}

#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stdout)] // tests say why they are skipped
fn everything_holds_on_a_stand_in_for_the_driver() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let driver = CudaDriver::new();
    if !driver.architectures().contains(&"90a") {
        println!("skipped: the stand-in is an sm_90, and there are no kernels for it");
        return;
    }
    if driver.devices().unwrap().iter().any(|info| driver.score(info) > 0) {
        println!("skipped: the tests run on a real device");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(folder.path().join("libcuda.so"));
    cc.args(["fake_driver.c", "fake_work.c"].map(|name| sources.join(name)));
    assert!(cc.status().unwrap().success());

    // One thread: the stand-in watches for contexts that are not popped.
    let said = run(folder.path(), &["--test-threads=1"], &[]);
    assert!(said.contains("test result: ok"), "{said}");
    let one = |test: &str, fault: &str, settings: &[(&str, &str)]| {
        let settings = [&[("FORETOKEN_TEST_FAULT", fault)], settings].concat();
        let said = run(folder.path(), &["--exact", test], &settings);
        assert!(said.contains("1 passed"), "{said}");
    };
    one("faults::a_report_of_a_kernel_lasts", "report", &[("FAKE_REPORT", "2")]);
    let illegal = ("FAKE_SYNC", "700");
    one("faults::a_failure_of_asynchronous_work_lasts", "asynchronous", &[illegal]);
    let sync = ("FORETOKEN_CUDA_SYNC", "1");
    one("faults::launches_one_by_one_name_the_kernel", "one_by_one", &[illegal, sync]);
    one("faults::code_that_does_not_load_is_quoted", "load", &[("FAKE_LOAD", "222")]);
    let parameters = ("FAKE_PARAMETER", "8");
    one("faults::arguments_are_held_against_the_code", "parameters", &[parameters]);
    let more = [("FAKE_MORE", "1"), sync];
    one("faults::arguments_are_held_against_the_code", "parameters", &more);
    let twins = ("FAKE_TWINS", "1");
    for (fault, setting) in [
        ("whole", twins),
        ("torn", ("FAKE_TORN", "4095")),
        ("peers", ("FAKE_PEERS", "0")),
        ("refused", ("FAKE_REFUSED", "999")),
    ] {
        one("links::copies_that_do_not_arrive_are_found_out", fault, &[twins, setting]);
    }
    one("faults::a_device_that_does_not_open_is_quoted", "open", &[("FAKE_HOST_ALLOC", "46")]);
}
