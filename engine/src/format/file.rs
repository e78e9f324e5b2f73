//! Getting at the bytes of a file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::{FormatFault, SharedBytes};
use crate::{Error, Result};

/// How to open a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Map the file (the default) instead of reading it into memory.
    ///
    /// A mapped file must not be shortened while the model lives: reading a page that is
    /// gone ends the process (`SIGBUS` on Unix), which no check can prevent. Where a
    /// file may change under a running process, or lies on a share that can vanish, turn
    /// mapping off; it then costs as much memory as the file is long.
    pub mmap: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { mmap: true }
    }
}

/// All bytes of a regular, non-empty file; `wanted` names the format in messages.
pub(super) fn load(path: &Path, opts: OpenOptions, wanted: &'static str) -> Result<SharedBytes> {
    let io = |e| Error::io(path, e);
    // Looked at before opening: opening a pipe would wait for a writer.
    let meta = fs::metadata(path).map_err(io)?;
    if meta.is_dir() {
        return Err(Error::format(path, FormatFault::IsDirectory { wanted }));
    }
    if !meta.is_file() {
        return Err(Error::format(path, FormatFault::NotRegular));
    }
    let file = File::open(path).map_err(io)?;
    if meta.len() == 0 {
        return Err(Error::format(path, FormatFault::Empty));
    }
    if opts.mmap {
        // SAFETY: the mapping is read-only and private to us. That nobody shortens or
        // rewrites the file meanwhile is the caller's part, as `OpenOptions` says.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        return Ok(SharedBytes::new(Arc::new(map)));
    }
    let mut bytes = Vec::new();
    let len = usize::try_from(meta.len()).map_err(|_| io(io::ErrorKind::OutOfMemory.into()))?;
    bytes.try_reserve_exact(len).map_err(|_| io(io::ErrorKind::OutOfMemory.into()))?;
    // Not past the length that memory was set aside for, should the file be growing.
    file.take(meta.len()).read_to_end(&mut bytes).map_err(io)?;
    Ok(SharedBytes::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_read_bytes_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"hello").unwrap();
        for mmap in [true, false] {
            let bytes = load(&path, OpenOptions { mmap }, "test").unwrap();
            assert_eq!(&*bytes, b"hello");
        }
    }

    #[test]
    fn folders_empty_and_absent_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let opts = OpenOptions::default();
        let fault = |p: &Path| match load(p, opts, "GGUF") {
            Err(Error::Format { fault, .. }) => Some(fault),
            _ => None,
        };
        assert_eq!(fault(dir.path()), Some(FormatFault::IsDirectory { wanted: "GGUF" }));
        let empty = dir.path().join("empty");
        fs::write(&empty, b"").unwrap();
        assert_eq!(fault(&empty), Some(FormatFault::Empty));
        assert!(matches!(load(&dir.path().join("no"), opts, "GGUF"), Err(Error::Io { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_refused_without_being_opened() {
        let got = load(Path::new("/dev/zero"), OpenOptions { mmap: false }, "GGUF");
        assert!(matches!(got, Err(Error::Format { fault: FormatFault::NotRegular, .. })));
    }
}
