//! A whole build of kernels, with a script in the compiler's place that writes down each
//! of its calls.
#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use foretoken_build::BuildFault;
use foretoken_build::cuda::Plan;
use foretoken_build::manifest::{ImageKind, Manifest};

/// Puts its arguments in the output file, and reports one kernel for machine code. A
/// source that contains `error` does not compile.
const NVCC: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "release 13.0, V13.0.88"; exit; }
for last in "$@"; do case $last in -gencode*code=sm_*) arch=${last##*sm_} ;; esac; done
echo "$last $arch" >> "$(dirname "$0")/calls"
grep -q error "$last" && { echo "$last(1): error: it says so"; exit 2; }
while [ "$1" != -o ]; do shift; done
printf '%s' "code of $last $arch" > "$2"
[ -z "$arch" ] && exit
echo "ptxas info    : Compiling entry function 'one' for 'sm_$arch'"
echo "ptxas info    : Used 12 registers, used 1 barriers, 2048 bytes smem"
"#;

/// A kernel crate, a target folder and a compiler.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["crate/src", "crate/include", "target/debug/build/kernels-1/out"] {
            fs::create_dir_all(place.path(folder)).unwrap();
        }
        place.put("crate/src/alpha.cu", "a");
        place.put("crate/src/beta.cu", "b");
        place.put("crate/src/lib.rs", "not a kernel");
        place.put("crate/include/shared.cuh", "s");
        // Written by another process: a file that this one holds open may not be run.
        let mut sh = Command::new("sh");
        sh.args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", NVCC]);
        assert!(sh.arg(place.path("nvcc")).status().unwrap().success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn out(&self, name: &str) -> String {
        fs::read_to_string(self.path("target/debug/build/kernels-1/out").join(name)).unwrap()
    }

    fn plan(&self) -> Plan {
        let out = self.path("target/debug/build/kernels-1/out");
        Plan { folder: self.path("crate"), out }
    }

    fn build(&self, archs: &str) -> Result<(), BuildFault> {
        let variable = |name: &str| -> Option<OsString> {
            match name {
                "FORETOKEN_NVCC" => Some(self.path("nvcc").into()),
                "FORETOKEN_CUDA_ARCHS" => Some(archs.into()),
                _ => None,
            }
        };
        self.plan().run(&variable)
    }

    /// Calls since the last question, by source and architecture (none for PTX).
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        fs::write(self.path("calls"), "").unwrap();
        let name = |line: &str| line.rsplit('/').next().unwrap_or_default().trim().to_owned();
        let mut calls: Vec<String> = text.lines().map(name).collect();
        calls.sort();
        calls
    }
}

#[test]
fn each_source_is_compiled_for_each_architecture_and_listed() {
    let place = Place::new();
    place.build("86,90a").unwrap();
    let expected =
        ["alpha.cu", "alpha.cu 86", "alpha.cu 90a", "beta.cu", "beta.cu 86", "beta.cu 90a"];
    assert_eq!(place.calls(), expected);

    let manifest = Manifest::from_json(&place.out("manifest.json")).unwrap();
    assert_eq!((manifest.toolchain.as_str(), manifest.key.len()), ("nvcc 13.0.88", 32));
    assert_eq!(manifest.architectures(), ["86", "90a"]);
    let files: Vec<_> = manifest.images.iter().map(|image| image.file.as_str()).collect();
    assert_eq!(
        files[..3],
        ["alpha.sm_86.fatbin", "alpha.compute_86.fatbin", "alpha.sm_90a.fatbin"]
    );
    for image in &manifest.images {
        assert_eq!(place.out(&image.file).len() as u64, image.bytes);
        let machine = image.kind == ImageKind::Cubin;
        assert_eq!(image.kernels.len(), usize::from(machine), "{}", image.file);
    }
    let kernel = &manifest.images[0].kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.registers, kernel.shared_bytes), ("one", 12, 2048));

    let tables = place.out("images.rs");
    assert!(tables.contains(r#"family: "beta", arch: "90a", kind: ImageKind::Machine"#));
    assert!(tables.contains(r#"family: "alpha", arch: "86", kind: ImageKind::Portable"#));
    assert!(tables.contains(r#"ARCHITECTURES: &[&str] = &["86", "90a"];"#), "{tables}");
}

#[test]
fn nothing_is_compiled_twice_and_every_change_counts() {
    let place = Place::new();
    let key = || Manifest::from_json(&place.out("manifest.json")).unwrap().key;
    place.build("86").unwrap();
    assert_eq!(place.calls().len(), 4);
    let first = key();
    place.build("86").unwrap();
    assert_eq!((place.calls().len(), key()), (0, first.clone()));
    // What another profile of the same target folder has built is there, too.
    assert!(place.path("target/kernel-cache").is_dir());
    place.put("crate/src/beta.cu", "other");
    place.build("86").unwrap();
    assert_eq!(place.calls(), ["beta.cu", "beta.cu 86"]);
    assert_ne!(key(), first);
    place.put("crate/include/shared.cuh", "other");
    place.build("86").unwrap();
    assert_eq!(place.calls().len(), 4);
    // One more architecture costs that one; going back costs nothing.
    place.build("86,120a").unwrap();
    assert_eq!(place.calls(), ["alpha.cu 120a", "beta.cu 120a"]);
    place.build("120a").unwrap();
    assert_eq!(place.calls(), Vec::<String>::new());
    assert!(!place.out("images.rs").contains("\"86\""));
    let left = fs::read_dir(place.plan().out).unwrap().count();
    assert_eq!(left, 4, "two images, the manifest and the tables");
}

#[test]
fn a_source_that_does_not_compile_is_the_compiler_s_to_explain() {
    let place = Place::new();
    place.put("crate/src/beta.cu", "error");
    match place.build("86,90a").unwrap_err() {
        BuildFault::Command { command, status, output } => {
            assert!(command.contains("beta.cu") && status.contains('2'), "{command} {status}");
            assert!(output.contains("beta.cu(1): error: it says so"), "{output}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(place.build("86,banana"), Err(BuildFault::BadArch { .. })));
    // What went well is not done again.
    place.calls();
    place.put("crate/src/beta.cu", "b");
    place.build("86,90a").unwrap();
    assert_eq!(place.calls(), ["beta.cu", "beta.cu 86", "beta.cu 90a"]);
}

#[test]
fn a_build_without_kernels_has_empty_tables() {
    let place = Place::new();
    place.plan().nothing().unwrap();
    let tables = place.out("images.rs");
    assert!(tables.contains("IMAGES: &[Image] = &[\n];"), "{tables}");
    assert!(
        tables.contains("ARCHITECTURES: &[&str] = &[];") && tables.contains("KEY: &str = \"\"")
    );
    let manifest = Manifest::from_json(&place.out("manifest.json")).unwrap();
    assert_eq!(manifest, Manifest::default());
    assert!(!Path::new(&place.path("calls")).exists());
}
