//! The cost cache's file: what is stored comes back, and nothing in it can do harm.

use std::fs;
use std::path::PathBuf;

use foretoken::Error;
use foretoken::speculate::{CostCache, CostKey, CostPoints, VerifyPoint};
use proptest::prelude::*;

fn key(model: &str) -> CostKey {
    CostKey {
        device: "cpu:0".into(),
        model: model.into(),
        drafter: "lookup".into(),
        build: "0.1.0".into(),
    }
}

fn points(plain_s: f64) -> CostPoints {
    let verify = [2, 64].map(|rows| VerifyPoint { rows, seconds: 0.1 * rows as f64 }).to_vec();
    CostPoints { plain_s, draft_s: 0.0, commit_s: 1e-4, verify }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("costs.json");
    (folder, path)
}

/// A file of one entry, made by the writer.
fn sound() -> String {
    let (_folder, path) = folder();
    let mut cache = CostCache::default();
    cache.insert(key("a"), points(0.05));
    cache.store(&path).unwrap();
    fs::read_to_string(path).unwrap()
}

fn load(text: impl AsRef<[u8]>) -> CostCache {
    let (_folder, path) = folder();
    fs::write(&path, text).unwrap();
    CostCache::load(&path)
}

#[test]
fn what_is_stored_comes_back_and_leaves_nothing_else() {
    let (folder, _) = folder();
    let path = folder.path().join("made/when/needed/costs.json");
    assert!(CostCache::load(&path).is_empty());
    let mut cache = CostCache::default();
    for (model, plain_s) in [("a", 0.05), ("b", 0.1 + 0.2), ("a", 1.0 / 3.0)] {
        cache.insert(key(model), points(plain_s));
        cache.store(&path).unwrap();
        assert_eq!(CostCache::load(&path), cache);
    }
    assert_eq!(cache.len(), 2);
    assert_eq!(cache.get(&key("a")), Some(&points(1.0 / 3.0)));
    assert_eq!(cache.get(&key("c")), None);
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "temporary files are gone");
}

#[test]
fn the_oldest_go_first_and_the_unusable_are_not_kept() {
    let mut cache = CostCache::default();
    for n in 0..100 {
        cache.insert(key(&n.to_string()), points(1.0));
    }
    cache.insert(key("nan"), points(f64::NAN));
    cache.insert(key(&"x".repeat(10_000)), points(1.0));
    assert_eq!(cache.len(), 64);
    assert!(cache.get(&key("35")).is_none() && cache.get(&key("36")).is_some());
    let (_folder, path) = folder();
    cache.store(&path).unwrap();
    assert_eq!(CostCache::load(&path), cache);
}

#[test]
fn a_full_cache_can_be_read_again() {
    let mut cache = CostCache::default();
    let verify = (1..=64).map(|rows| VerifyPoint { rows, seconds: rows as f64 / 7.0 }).collect();
    let full = CostPoints { plain_s: 1.0 / 3.0, draft_s: 1e-300, commit_s: 0.0, verify };
    for n in 0..64 {
        // Escapes make names as long in the file as they can get.
        let long = format!("{n:02}{}", "\u{1}".repeat(254));
        let key = CostKey {
            device: long.clone(),
            model: long.clone(),
            drafter: long.clone(),
            build: long,
        };
        cache.insert(key, full.clone());
    }
    let (_folder, path) = folder();
    cache.store(&path).unwrap();
    assert!(CostCache::load(&path) == cache);
}

#[test]
fn hostile_files_are_ignored() {
    let sound = sound();
    assert_eq!(load(&sound).len(), 1);
    let nested = "[".repeat(100_000);
    for bad in [
        "",
        "null",
        "[]",
        "{}",
        "\u{0}",
        nested.as_str(),
        r#"{"version":1}"#,
        r#"{"version":1,"entries":7}"#,
        r#"{"version":-1,"entries":[]}"#,
        &sound.replace("\"version\": 1", "\"version\": 2"),
        &sound.replace("0.05", "1e999"),
        &sound.replace("0.05", "NaN"),
        &sound.replace("0.05", "\"0.05\""),
        &sound.replace("0.05", "-0.05"),
        &sound.replace("0.05", "0"),
        &sound.replace("0.05", "1e300"),
        &sound.replace("\"rows\": 64", "\"rows\": 65"),
        &sound.replace("\"rows\": 64", "\"rows\": 0"),
        &sound.replace("\"rows\": 64", "\"rows\": 18446744073709551616"),
        &sound.replace("\"rows\": 64", "\"rows\": -1"),
        &sound.replace("cpu:0", &"x".repeat(600)),
        &format!("{sound}{}", " ".repeat(1 << 20)),
        &sound[..sound.len() / 2],
    ] {
        let shown: String = bad.chars().take(60).collect();
        assert!(load(bad).is_empty(), "{shown}");
    }
    assert!(load(b"\xff\xfe\x00{").is_empty());
    let (folder, _) = folder();
    assert!(CostCache::load(folder.path()).is_empty(), "a folder");
}

#[test]
fn one_bad_entry_leaves_the_others() {
    let (_folder, path) = folder();
    let mut cache = CostCache::default();
    cache.insert(key("a"), points(0.05));
    cache.insert(key("b"), points(0.07));
    cache.store(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap().replace("0.05", "-1.0");
    let read = load(text);
    assert_eq!((read.len(), read.get(&key("b"))), (1, Some(&points(0.07))));
}

#[test]
fn what_can_not_be_written_is_an_error() {
    let (folder, path) = folder();
    fs::create_dir(&path).unwrap();
    let cache = CostCache::default();
    assert!(matches!(cache.store(&path), Err(Error::Io { .. })), "over a folder");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(cache.store(file.join("costs.json")), Err(Error::Io { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_bytes_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sound().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cache = load(bytes);
        prop_assert!(cache.len() <= 1);
        if let Some(points) = cache.get(&key("a")) {
            prop_assert!(points.check().is_ok());
        }
    }
}
