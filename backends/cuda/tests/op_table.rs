//! The driver-operation table on a GPU: with the code of its own architecture, and with
//! the portable code of each architecture that `FORETOKEN_FORCE_PTX` lists (`75,80,86,89`),
//! which the NVIDIA driver compiles for whatever GPU there is.
// The lists of operations are for people.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use foretoken::device::Driver;
use foretoken::testing::{OpTable, Report, run_op_table};
use foretoken_cuda::{CudaDriver, CudaOptions};

/// Runs the table with one kind of code; `FORETOKEN_TEST_CASES` limits it to cases whose
/// names contain one of the words there, between commas.
fn run(force_ptx: Option<&str>) -> Vec<Report> {
    let options = CudaOptions { force_ptx: force_ptx.map(str::to_owned), ..CudaOptions::default() };
    let driver = CudaDriver::with_options(options);
    let devices = driver.devices().unwrap();
    let code = force_ptx.map_or("native code".to_owned(), |arch| format!("PTX of {arch}"));
    let Some(info) = devices.first().filter(|info| driver.score(info) > 0) else {
        let problems = driver.problems();
        println!("skipped: {code}: {}", problems.first().map_or("no device", |p| p));
        return Vec::new();
    };
    let device = driver.open(info.index).unwrap();
    let words = std::env::var("FORETOKEN_TEST_CASES").unwrap_or_default();
    let run = |word: &str| {
        let filter = Some(word.to_owned()).filter(|word| !word.is_empty());
        let report = run_op_table(&*device, &OpTable { seed: 1, filter });
        println!("{code} on {} ({}) {word}: {report}", info.name, info.arch);
        // A word that no case has would pass for a check.
        assert!(report.passed.len() + report.unsupported.len() > 0 || !report.is_ok(), "{word}");
        list_missing(&report);
        report
    };
    words.split(',').map(run).collect()
}

fn list_missing(report: &Report) {
    let mut missing: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (case, words) in &report.unsupported {
        let operation = case.split('/').next().unwrap_or(case);
        missing.entry(operation).or_insert((0, words)).0 += 1;
    }
    for (operation, (cases, words)) in missing {
        println!("  unsupported: {operation}: {cases} cases, such as: {words}");
    }
}

#[test]
fn the_device_s_own_code() {
    for report in run(None) {
        assert!(report.is_ok(), "{report}");
    }
}

#[test]
fn portable_code_of_other_architectures() {
    let list = std::env::var("FORETOKEN_FORCE_PTX").unwrap_or_default();
    if list.is_empty() {
        println!("skipped: FORETOKEN_FORCE_PTX lists no architectures, such as 75,80,86,89");
    }
    let archs: Vec<&str> = list.split(',').filter(|arch| !arch.is_empty()).collect();
    let reports: Vec<_> = archs.iter().map(|arch| (arch, run(Some(arch)))).collect();
    for (arch, reports) in reports {
        for report in reports {
            assert!(report.is_ok(), "PTX of {arch}: {report}");
        }
    }
}
