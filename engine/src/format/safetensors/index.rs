//! Where the weights of a folder are: one file, or shards named by an index.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::json::{self, Entries};
use crate::format::{FormatFault, file};
use crate::{Error, Result};

/// The index of a model with a hundred thousand tensors is some ten megabytes.
const MAX_INDEX: u64 = 32 << 20;

/// Bytes in the name of a file, the limit of common file systems.
const MAX_FILE_NAME: usize = 255;

/// The weights of a model.
pub(super) enum Weights {
    File(PathBuf),
    Sharded(Listing),
}

/// What an index lists: file names, and the tensors each must hold.
pub(super) struct Listing {
    pub(super) folder: PathBuf,
    pub(super) shards: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: Entries<String>,
}

/// Looks through a folder.
pub(super) fn find(folder: &Path) -> Result<Weights> {
    let single = folder.join("model.safetensors");
    if single.exists() {
        return Ok(Weights::File(single));
    }
    let index = folder.join("model.safetensors.index.json");
    if let Some(text) = file::read_small(&index, "an index", MAX_INDEX)? {
        let shards = parse(&text).map_err(|fault| Error::format(&index, fault))?;
        return Ok(Weights::Sharded(Listing { folder: folder.to_path_buf(), shards }));
    }
    let io = |e| Error::io(folder, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            found.push(path);
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(Weights::File(only)),
        _ => Err(Error::format(folder, FormatFault::NoWeights)),
    }
}

/// Turns `tensor -> file` around.
fn parse(text: &[u8]) -> Result<BTreeMap<String, Vec<String>>, FormatFault> {
    let index: Index =
        serde_json::from_slice(text).map_err(|e| json::fault("not a safetensors index", &e))?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut names = std::collections::HashSet::new();
    for (tensor, file) in index.weight_map.tensors()? {
        if !is_plain(&file) {
            return Err(FormatFault::BadShardPath { file });
        }
        if !names.insert(tensor.clone()) {
            return Err(FormatFault::DuplicateTensor { tensor });
        }
        shards.entry(file).or_default().push(tensor);
    }
    if shards.is_empty() {
        return Err(FormatFault::NoWeights);
    }
    Ok(shards)
}

/// True for the name of a file right in the folder, of a length that there can be. Both kinds of separator are refused
/// everywhere, and control characters, which would break one-line messages.
fn is_plain(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    let one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    one && file.len() <= MAX_FILE_NAME
        && !file.contains(['/', '\\', ':'])
        && !file.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_file_names_lead_to_shards() {
        assert!(is_plain("model-00001-of-00002.safetensors"));
        for bad in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "c:x", "a\nb", "a/"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
        assert!(is_plain(&"x".repeat(255)) && !is_plain(&"x".repeat(256)));
    }

    #[test]
    fn an_index_of_too_many_tensors_is_refused() {
        let index = |count: usize| {
            let entries: Vec<_> = (0..count).map(|i| format!("\"{i:x}\":\"f\"")).collect();
            parse(format!("{{\"weight_map\":{{{}}}}}", entries.join(",")).as_bytes())
        };
        let limit = json::MAX_ENTRIES;
        assert_eq!(index(limit).unwrap()["f"].len(), limit);
        let count = limit as u64 + 5;
        assert_eq!(index(limit + 5), Err(FormatFault::TooManyTensors { count, limit }));
    }

    #[test]
    fn an_index_is_an_object_of_unique_names() {
        let ok = parse(br#"{"metadata":{},"weight_map":{"a":"x","b":"y","c":"x"}}"#).unwrap();
        assert_eq!(ok["x"], ["a", "c"]);
        assert_eq!(ok["y"], ["b"]);
        let twice = parse(br#"{"weight_map":{"a":"x","a":"y"}}"#);
        assert_eq!(twice, Err(FormatFault::DuplicateTensor { tensor: "a".into() }));
        assert_eq!(parse(br#"{"weight_map":{}}"#), Err(FormatFault::NoWeights));
        for bad in ["[]", "{}", r#"{"weight_map":[]}"#, r#"{"weight_map":{"a":1}}"#, "{", ""] {
            assert!(matches!(parse(bad.as_bytes()), Err(FormatFault::Json { .. })), "{bad}");
        }
    }
}
