//! Not compiling what has not changed: keys by content, and a folder of results.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::BuildFault;

/// A 128-bit FNV-1a hash. Good against accident, not against malice: the cache is the
/// developer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    /// The key of nothing.
    pub const fn new() -> Self {
        Self(Self::START)
    }

    /// With a named piece added: an argument, a version, a source. Both parts go in with
    /// their lengths, so that pieces cannot run into each other.
    #[must_use]
    pub fn with(self, name: &str, content: &[u8]) -> Self {
        self.length(name.len()).bytes(name.as_bytes()).length(content.len()).bytes(content)
    }

    /// With the files added under their names relative to `root`, sorted, so that
    /// neither their order nor the place of the checkout matters.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn with_files(self, root: &Path, files: &[PathBuf]) -> Result<Self, BuildFault> {
        let mut files = files.to_vec();
        files.sort();
        files.iter().try_fold(self, |key, file| {
            let content = fs::read(file).map_err(|e| BuildFault::io(file, e))?;
            let name = file.strip_prefix(root).unwrap_or(file);
            Ok(key.with(&name.to_string_lossy().replace('\\', "/"), &content))
        })
    }

    fn length(self, n: usize) -> Self {
        self.bytes(&(n as u64).to_le_bytes())
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |h, &b| (h ^ u128::from(b)).wrapping_mul(Self::PRIME)))
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A folder that holds results under their keys.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// In a folder, which is made when something is first stored.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// What was stored under a key; none if nothing was.
    ///
    /// # Errors
    /// A result is there and cannot be read.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>, BuildFault> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BuildFault::io(&path, error)),
        }
    }

    /// Stores a result. It appears whole or not at all, even if two builds store it at
    /// once or one is interrupted.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn put(&self, key: Key, content: &[u8]) -> Result<(), BuildFault> {
        let path = self.path(key);
        let part = self.folder.join(format!("{key}.{}.part", std::process::id()));
        fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&part, content))
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|e| BuildFault::io(&path, e))
    }

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a 128 of "a" and "foobar", from the authors' test vectors.
        let hash = |text: &str| Key::new().bytes(text.as_bytes()).to_string();
        assert_eq!(hash("a"), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(hash("foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }

    #[test]
    fn every_piece_counts_and_pieces_do_not_run_together() {
        let base = Key::new().with("ab", b"c").with("flags", b"-O3");
        assert_eq!(base, Key::new().with("ab", b"c").with("flags", b"-O3"));
        assert_ne!(base, Key::new().with("a", b"bc").with("flags", b"-O3"));
        assert_ne!(base, Key::new().with("flags", b"-O3").with("ab", b"c"));
        assert_ne!(base, Key::new().with("ab", b"c").with("flags", b"-O2"));
        assert_ne!(base, base.with("", b""));
    }

    #[test]
    fn files_count_by_name_and_content_wherever_they_lie() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |root: &Path, name: &str, text: &str| {
            fs::write(root.join(name), text).unwrap();
            root.join(name)
        };
        let here = [write(one.path(), "a.cu", "x"), write(one.path(), "b.cu", "y")];
        let there = [write(two.path(), "b.cu", "y"), write(two.path(), "a.cu", "x")];
        let key = |root: &Path, files: &[PathBuf]| Key::new().with_files(root, files).unwrap();
        let before = key(one.path(), &here);
        assert_eq!(before, key(two.path(), &there));
        write(two.path(), "a.cu", "z");
        assert_ne!(before, key(two.path(), &there));
        assert!(Key::new().with_files(one.path(), &[one.path().join("none")]).is_err());
    }

    #[test]
    fn results_are_kept_under_their_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("deep/er"));
        let (one, two) = (Key::new().with("1", b""), Key::new().with("2", b""));
        assert_eq!(cache.get(one).unwrap(), None);
        cache.put(one, b"result").unwrap();
        cache.put(one, b"result").unwrap();
        assert_eq!(cache.get(one).unwrap().as_deref(), Some(&b"result"[..]));
        assert_eq!(cache.get(two).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path().join("deep/er")).unwrap().count(), 1);
        // A file where the folder should be.
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(Cache::new(folder.path().join("file")).put(one, b"").is_err());
    }
}
