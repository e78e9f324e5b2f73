//! The driver-operation table on every instruction set and several thread counts:
//! close to the references, and the same bits throughout.

use std::sync::OnceLock;

use foretoken::device::Driver;
use foretoken::testing::{OpTable, Report, run_op_table};
use foretoken_cpu::simd::Isa;
use foretoken_cpu::{CpuDriver, CpuOptions};

fn run(isa: Isa, threads: usize) -> Report {
    let options = CpuOptions { threads: Some(threads), isa: Some(isa), memory_limit: None };
    let device = CpuDriver::new(options).open(0).unwrap();
    let report = run_op_table(&*device, &OpTable { seed: 1, filter: None });
    assert!(report.is_ok(), "{} with {threads} threads: {report}", isa.name());
    assert_eq!(report.unsupported, [], "the CPU driver has every operation");
    report
}

/// The plainest run there is: what all others are held against.
fn plain() -> &'static Report {
    static PLAIN: OnceLock<Report> = OnceLock::new();
    PLAIN.get_or_init(|| run(Isa::Portable, 1))
}

fn same_bits(threads: usize) {
    for &isa in Isa::available() {
        let report = run(isa, threads);
        for (got, want) in report.passed.iter().zip(&plain().passed) {
            assert_eq!(got, want, "{} with {threads} threads", isa.name());
        }
        assert_eq!(report.passed.len(), plain().passed.len());
    }
}

#[test]
fn one_thread() {
    same_bits(1);
}

#[test]
fn two_threads() {
    same_bits(2);
}

#[test]
fn three_threads() {
    same_bits(3);
}

/// The hashes that the comparison rests on do change with the inputs.
#[test]
fn other_inputs_give_other_bits() {
    let device = CpuDriver::default().open(0).unwrap();
    let table = |seed| OpTable { seed, filter: Some("rms_norm/m".into()) };
    let (one, two) = (run_op_table(&*device, &table(1)), run_op_table(&*device, &table(2)));
    assert!(one.is_ok() && one.passed.len() == two.passed.len());
    for (a, b) in one.passed.iter().zip(&two.passed) {
        assert_ne!(a.1, b.1, "{}", a.0);
    }
}
