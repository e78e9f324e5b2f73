//! Models split over several files, as llama.cpp's `gguf-split` lays them out.
//!
//! Each shard is a GGUF file of its own with the keys `split.no` (from 0), `split.count`
//! and `split.tensors.count`; the first also holds the model's metadata.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::GgufFile;
use super::header::{Contents, parse};
use super::metadata::Metadata;
use crate::format::{FormatFault, SharedBytes};
use crate::{Error, Result};

/// Builds a model from the file that was opened, loading its siblings if it has any.
pub(super) fn assemble(
    path: &Path,
    bytes: &SharedBytes,
    load: impl Fn(&Path) -> Result<SharedBytes>,
) -> Result<GgufFile> {
    let opened = parse_at(path, bytes)?;
    // A count of 0 is what merging leaves behind: not split any more.
    let count = opened.metadata.u32("split.count")?.unwrap_or(0);
    if count <= 1 {
        return collect(path, vec![(path.to_path_buf(), opened)], 1);
    }
    let no = opened.metadata.require_u32("split.no")?;
    if no >= count {
        let (found, wanted) = (no.into(), u64::from(count) - 1);
        let fault = FormatFault::ShardMismatch { what: "split.no", found, wanted };
        return Err(Error::format(path, fault));
    }
    let shown_no = no + 1;
    let Some(prefix) = shard_prefix(path, shown_no, count) else {
        return Err(Error::format(path, FormatFault::ShardName { no: shown_no, count }));
    };
    let mut opened = Some(opened);
    let mut shards = Vec::new();
    for i in 0..count {
        if i == no {
            shards.extend(opened.take().map(|c| (path.to_path_buf(), c)));
            continue;
        }
        let sibling = path.with_file_name(shard_name(&prefix, i + 1, count));
        let bytes = load(&sibling).map_err(|e| match e {
            Error::Io { path, source } if source.kind() == ErrorKind::NotFound => {
                Error::format(path, FormatFault::MissingShard { no: i + 1, count })
            }
            other => other,
        })?;
        let contents = parse_at(&sibling, &bytes)?;
        expect(&sibling, &contents.metadata, "split.count", count)?;
        expect(&sibling, &contents.metadata, "split.no", i)?;
        shards.push((sibling, contents));
    }
    collect(path, shards, count)
}

fn parse_at(path: &Path, bytes: &SharedBytes) -> Result<Contents> {
    parse(path, bytes).map_err(|fault| Error::format(path, fault))
}

/// A key that must hold this number.
fn expect(path: &Path, metadata: &Metadata, what: &'static str, wanted: u32) -> Result<()> {
    let found = metadata.require_u32(what)?;
    if found != wanted {
        let (found, wanted) = (found.into(), wanted.into());
        return Err(Error::format(path, FormatFault::ShardMismatch { what, found, wanted }));
    }
    Ok(())
}

/// Joins the tensors of all shards and takes the metadata of the first.
fn collect(path: &Path, shards: Vec<(PathBuf, Contents)>, count: u32) -> Result<GgufFile> {
    let total: usize = shards.iter().map(|(_, c)| c.tensors.len()).sum();
    let (mut tensors, mut index) = (Vec::new(), HashMap::new());
    let mut first = None;
    for (shard, contents) in shards {
        let Contents { metadata, tensors: own, version, alignment } = contents;
        // Every shard that states the total must be right: a shard of another model
        // with as many parts is found out here.
        let stated = if count > 1 { metadata.u64("split.tensors.count")? } else { None };
        if let Some(wanted) = stated.filter(|&n| n != total as u64) {
            let what = "the number of tensors in all shards";
            let fault = FormatFault::ShardMismatch { what, found: total as u64, wanted };
            return Err(Error::format(&shard, fault));
        }
        for info in own {
            if index.insert(info.name.clone(), tensors.len()).is_some() {
                let fault = FormatFault::DuplicateTensor { tensor: info.name };
                return Err(Error::format(&shard, fault));
            }
            tensors.push(info);
        }
        first.get_or_insert((metadata, version, alignment));
    }
    // There is always a first shard; the fallback only spares a panic.
    let (metadata, version, alignment) = first.unwrap_or((Metadata::new(path), 0, 0));
    let path = path.to_path_buf();
    Ok(GgufFile { path, metadata, tensors, index, version, alignment, shards: count })
}

fn shard_name(prefix: &str, no: u32, count: u32) -> String {
    format!("{prefix}-{no:05}-of-{count:05}.gguf")
}

/// What comes before the numbers in the name of this shard; `None` when the name does
/// not carry exactly these numbers.
fn shard_prefix(path: &Path, no: u32, count: u32) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(&shard_name("", no, count)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards() {
        let prefix = |p: &str, no, count| shard_prefix(Path::new(p), no, count);
        assert_eq!(prefix("d/m-x-00002-of-00003.gguf", 2, 3).as_deref(), Some("m-x"));
        assert_eq!(prefix("m-00002-of-00003.gguf", 1, 3), None);
        assert_eq!(prefix("m.gguf", 1, 3), None);
        assert_eq!(shard_name("m", 1, 12), "m-00001-of-00012.gguf");
    }
}
