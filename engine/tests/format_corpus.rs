//! The seeds of the fuzz targets: `ok-*` must open, `bad-*` must not.

mod format_support;

use std::fs;
use std::path::Path;

use foretoken::Error;
use format_support::{gguf, safetensors};

/// Opens every seed of a target and gives how many of each kind there were.
fn hold_to_names(target: &str, open: impl Fn(Vec<u8>) -> Result<(), Error>) -> (usize, usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let (mut ok, mut bad) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let opened = open(fs::read(&path).unwrap());
        if name.starts_with("ok-") {
            assert!(opened.is_ok(), "{name}: {opened:?}");
            ok += 1;
        } else if name.starts_with("bad-") {
            assert!(opened.is_err(), "{name} was opened");
            bad += 1;
        }
    }
    (ok, bad)
}

#[test]
fn gguf_seeds() {
    let (ok, bad) = hold_to_names("gguf", |bytes| gguf(bytes).map(drop));
    assert!(ok >= 7 && bad >= 7, "{ok} {bad}");
}

#[test]
fn safetensors_seeds() {
    let (ok, bad) = hold_to_names("safetensors", |bytes| safetensors(bytes).map(drop));
    assert!(ok >= 4 && bad >= 5, "{ok} {bad}");
}
