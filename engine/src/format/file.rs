//! Getting at the bytes of a file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek};
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

/// A file format, as far as opening goes.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// Checks the first bytes of a file ([`START`] of them, or all) of that size.
    pub(super) check_start: fn(&[u8], u64) -> Result<(), FormatFault>,
}

/// Bytes that are looked at before a whole file is read.
const START: u64 = 64;

/// All bytes of a regular, non-empty file. One that is to be read rather than mapped is
/// read only if it starts like a file of this format.
pub(super) fn load(path: &Path, opts: OpenOptions, format: Format) -> Result<SharedBytes> {
    let io = |e| Error::io(path, e);
    // Looked at before opening: opening a pipe would wait for a writer.
    let meta = fs::metadata(path).map_err(io)?;
    if meta.is_dir() {
        return Err(Error::format(path, FormatFault::IsDirectory { wanted: format.name }));
    }
    if !meta.is_file() {
        return Err(Error::format(path, FormatFault::NotRegular));
    }
    let mut file = File::open(path).map_err(io)?;
    let len = meta.len();
    if len == 0 {
        return Err(Error::format(path, FormatFault::Empty));
    }
    if opts.mmap {
        // SAFETY: the mapping is read-only and private to us. That nobody shortens or
        // rewrites the file meanwhile is the caller's part, as `OpenOptions` says.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        return Ok(SharedBytes::new(Arc::new(map)));
    }
    let mut start = Vec::new();
    file.by_ref().take(START).read_to_end(&mut start).map_err(io)?;
    (format.check_start)(&start, len).map_err(|fault| Error::format(path, fault))?;
    file.rewind().map_err(io)?;
    let mut bytes = Vec::new();
    let room = usize::try_from(len).map_err(|_| io(ErrorKind::OutOfMemory.into()))?;
    bytes.try_reserve_exact(room).map_err(|_| io(ErrorKind::OutOfMemory.into()))?;
    // Not past the length that memory was set aside for, should the file be growing.
    file.take(len).read_to_end(&mut bytes).map_err(io)?;
    Ok(SharedBytes::from(bytes))
}

/// The bytes of a small file beside the weights; `None` when it does not exist. `what`
/// it is, an error says.
pub(crate) fn read_small(path: &Path, what: &'static str, limit: u64) -> Result<Option<Vec<u8>>> {
    let io = |e| Error::io(path, e);
    // Looked at before opening: opening a pipe would wait for a writer.
    let meta = match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io)?,
    };
    if !meta.is_file() {
        return Err(Error::format(path, FormatFault::NotRegular));
    }
    if meta.len() > limit {
        return Err(Error::format(path, FormatFault::FileTooLong { what, len: meta.len(), limit }));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(limit).read_to_end(&mut bytes).map_err(io)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anything but what starts with a 0.
    const TEST: Format = Format {
        name: "test",
        check_start: |start, size| match start.first() {
            Some(0) => Err(FormatFault::HeaderTooLong { len: start.len() as u64, limit: size }),
            _ => Ok(()),
        },
    };

    #[test]
    fn mapped_and_read_bytes_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"hello").unwrap();
        for mmap in [true, false] {
            let bytes = load(&path, OpenOptions { mmap }, TEST).unwrap();
            assert_eq!(&*bytes, b"hello");
        }
    }

    #[test]
    fn folders_empty_and_absent_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let opts = OpenOptions::default();
        let fault = |p: &Path| match load(p, opts, TEST) {
            Err(Error::Format { fault, .. }) => Some(fault),
            _ => None,
        };
        assert_eq!(fault(dir.path()), Some(FormatFault::IsDirectory { wanted: "test" }));
        let empty = dir.path().join("empty");
        fs::write(&empty, b"").unwrap();
        assert_eq!(fault(&empty), Some(FormatFault::Empty));
        assert!(matches!(load(&dir.path().join("no"), opts, TEST), Err(Error::Io { .. })));
    }

    /// A file of a terabyte that takes no room on the disk, and none in memory.
    #[cfg(unix)]
    #[test]
    fn a_file_that_starts_wrong_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let got = load(&path, OpenOptions { mmap: false }, TEST);
        let Err(Error::Format { fault, .. }) = got else { panic!("{got:?}") };
        assert_eq!(fault, FormatFault::HeaderTooLong { len: START, limit: 1 << 40 });
    }

    #[test]
    fn small_files_are_held_to_their_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let read = |path: &Path| read_small(path, "a test", 3);
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, b"abc").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(&b"abc"[..]));
        fs::write(&path, b"abcd").unwrap();
        let fault = |path: &Path| match read(path) {
            Err(Error::Format { fault, path: named }) => (named == path).then_some(fault),
            _ => None,
        };
        let too_long = FormatFault::FileTooLong { what: "a test", len: 4, limit: 3 };
        assert_eq!(fault(&path), Some(too_long));
        assert_eq!(fault(dir.path()), Some(FormatFault::NotRegular));
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_refused_without_being_opened() {
        let got = load(Path::new("/dev/zero"), OpenOptions { mmap: false }, TEST);
        assert!(matches!(got, Err(Error::Format { fault: FormatFault::NotRegular, .. })));
        let got = read_small(Path::new("/dev/zero"), "a test", 3);
        assert!(matches!(got, Err(Error::Format { fault: FormatFault::NotRegular, .. })));
    }
}
