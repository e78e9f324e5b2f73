//! Reading what `ptxas -v` says of each kernel.

use serde::{Deserialize, Serialize};

use crate::BuildFault;

/// What one kernel takes on one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Symbol, as in the object (mangled unless `extern "C"`).
    pub name: String,
    /// For example `sm_86`.
    pub arch: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Barriers of a block.
    pub barriers: u32,
    /// Static shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Stack frame of a thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes a thread writes to memory because registers do not suffice.
    pub spill_store_bytes: u32,
    /// Bytes a thread reads back.
    pub spill_load_bytes: u32,
}

impl KernelReport {
    /// Whether registers did not suffice.
    pub fn spills(&self) -> bool {
        self.spill_store_bytes > 0 || self.spill_load_bytes > 0
    }
}

/// Reads the text that nvcc prints with `--ptxas-options=-v`, for any number of
/// kernels and architectures. Warnings and properties of functions that are not
/// kernels are passed over.
///
/// # Errors
/// A line of a known kind does not read as such, or a kernel has no `Used` line.
pub fn parse(text: &str) -> Result<Vec<KernelReport>, BuildFault> {
    let mut kernels = Vec::new();
    let mut open: Option<(usize, KernelReport)> = None;
    let mut properties_of_open = false;
    for (line, text) in text.lines().enumerate().map(|(i, text)| (i + 1, text.trim())) {
        let fault = || BuildFault::Report { line, text: text.to_owned() };
        let info = text.strip_prefix("ptxas info").map(|rest| rest.trim_start_matches([' ', ':']));
        if let Some(rest) = info.and_then(|info| info.strip_prefix("Compiling entry function ")) {
            if let Some((line, kernel)) = open.take() {
                return Err(BuildFault::Report { line, text: kernel.name });
            }
            let (name, arch) = rest.split_once(" for ").ok_or_else(fault)?;
            let [name, arch] = [name, arch].map(|s| s.trim_matches('\'').to_owned());
            open = Some((line, KernelReport { name, arch, ..KernelReport::default() }));
            properties_of_open = false;
        } else if let Some(name) =
            info.and_then(|info| info.strip_prefix("Function properties for "))
        {
            properties_of_open = open.as_ref().is_some_and(|(_, kernel)| kernel.name == name);
        } else if let Some(used) = info.and_then(|info| info.strip_prefix("Used ")) {
            let (_, mut kernel) = open.take().ok_or_else(fault)?;
            kernel.registers = amount(used, "registers").ok_or_else(fault)?;
            kernel.barriers = amount(used, "barriers").unwrap_or(0);
            kernel.shared_bytes = amount(used, "bytes smem").unwrap_or(0);
            kernels.push(kernel);
        } else if properties_of_open
            && text.ends_with("spill loads")
            && let Some((_, kernel)) = &mut open
        {
            kernel.stack_bytes = amount(text, "bytes stack frame").ok_or_else(fault)?;
            kernel.spill_store_bytes = amount(text, "bytes spill stores").ok_or_else(fault)?;
            kernel.spill_load_bytes = amount(text, "bytes spill loads").ok_or_else(fault)?;
        }
    }
    match open {
        Some((line, kernel)) => Err(BuildFault::Report { line, text: kernel.name }),
        None => Ok(kernels),
    }
}

/// From a comma-separated list, the number before `unit`: `16384 bytes smem`.
fn amount(list: &str, unit: &str) -> Option<u32> {
    list.split(',').find_map(|part| {
        let part = part.trim();
        part.strip_prefix("used ").unwrap_or(part).strip_suffix(unit)?.trim_end().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by nvcc 13.0.88 for two architectures.
    const SAMPLE: &str = "\
ptxas warning : Value of threads per SM for entry _Z3bigILi64EEvPKfPf is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5callsPfi' for 'sm_86'
ptxas info    : Function properties for _Z5callsPfi
    128 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 128 bytes cumulative stack size, 364 bytes cmem[0]
ptxas info    : Compile time = 2.515 ms
ptxas info    : Function properties for _Z6helperfi
    64 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function '_Z3bigILi64EEvPKfPf' for 'sm_90a'
ptxas info    : Function properties for _Z3bigILi64EEvPKfPf
    2664 bytes stack frame, 2864 bytes spill stores, 7216 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2664 bytes cumulative stack size, 16384 bytes smem
ptxas info    : Compile time = 489.718 ms
ptxas info    : Compiling entry function 'axpy' for 'sm_90a'
ptxas info    : Function properties for axpy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compile time = 1.554 ms
";

    #[test]
    fn every_kernel_is_read_with_its_own_figures() {
        let kernels = parse(SAMPLE).unwrap();
        let brief: Vec<_> = kernels
            .iter()
            .map(|k| (k.name.as_str(), k.arch.as_str(), k.registers, k.shared_bytes, k.barriers))
            .collect();
        let expected = [
            ("_Z5callsPfi", "sm_86", 32, 0, 0),
            ("_Z3bigILi64EEvPKfPf", "sm_90a", 32, 16384, 1),
            ("axpy", "sm_90a", 10, 0, 0),
        ];
        assert_eq!(brief, expected);
        // The helper's spills are not its caller's.
        assert_eq!((kernels[0].stack_bytes, kernels[0].spills()), (128, false));
        let big = &kernels[1];
        let spilt = (big.stack_bytes, big.spill_store_bytes, big.spill_load_bytes);
        assert_eq!((spilt, big.spills()), ((2664, 2864, 7216), true));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn a_report_that_is_cut_or_garbled_is_refused() {
        let cut = SAMPLE.split("ptxas info    : Used 10").next().unwrap();
        assert!(matches!(parse(cut), Err(BuildFault::Report { line: 15, text }) if text == "axpy"));
        let missing = SAMPLE.replace("ptxas info    : Used 32 registers, used 1", "gone");
        assert!(matches!(parse(&missing), Err(BuildFault::Report { line: 10, .. })));
        let garbled = SAMPLE.replace("Used 10 registers", "Used many registers");
        assert!(matches!(parse(&garbled), Err(BuildFault::Report { line: 18, .. })));
        let garbled = SAMPLE.replace("2864 bytes spill stores", "? bytes spill stores");
        assert!(matches!(parse(&garbled), Err(BuildFault::Report { line: 12, .. })));
        assert!(parse("ptxas info    : Used 10 registers\n").is_err());
        assert!(parse("ptxas info    : Compiling entry function 'x'\n").is_err());
    }
}
