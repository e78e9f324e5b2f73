//! Measured points kept in a file, so that a model is timed once per device.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::CostPoints;
use crate::error::{Error, Result};

/// Layout of the file; another one is not read.
const VERSION: u32 = 1;
/// Most entries kept; the oldest go first.
const MAX_ENTRIES: usize = 64;
/// Longest part of a key in bytes.
const MAX_NAME: usize = 256;
/// Largest file read: more than the entries above can come to.
const MAX_BYTES: u64 = 1 << 20;

/// What a measurement holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostKey {
    /// Device and driver.
    pub device: String,
    /// Target model and its format.
    pub model: String,
    /// Drafter.
    pub drafter: String,
    /// Build of the engine.
    pub build: String,
}

impl CostKey {
    fn is_short(&self) -> bool {
        [&self.device, &self.model, &self.drafter, &self.build]
            .iter()
            .all(|name| name.len() <= MAX_NAME)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    key: CostKey,
    points: CostPoints,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    entries: Vec<Entry>,
}

/// Measurements by key. At most 64, the newest of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostCache {
    /// Oldest first.
    entries: Vec<Entry>,
}

impl CostCache {
    /// Reads the file. What is not there is empty; what can not be read or makes no sense
    /// is passed over with a warning, since all it can save is time.
    pub fn load(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match read(path) {
            Ok(None) => Self::default(),
            Ok(Some(document)) => Self::checked(document, path),
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "cost cache ignored");
                Self::default()
            }
        }
    }

    fn checked(document: Document, path: &Path) -> Self {
        let mut cache = Self::default();
        let mut dropped = 0u32;
        for Entry { key, points } in document.entries {
            if !key.is_short() || points.check().is_err() {
                dropped += 1;
                continue;
            }
            cache.insert(key, points);
        }
        if dropped > 0 {
            tracing::warn!(path = %path.display(), dropped, "unusable cost cache entries ignored");
        }
        cache
    }

    /// The points of a key.
    pub fn get(&self, key: &CostKey) -> Option<&CostPoints> {
        self.entries.iter().find(|entry| entry.key == *key).map(|entry| &entry.points)
    }

    /// Adds or replaces the points of a key and drops the oldest past the limit. A key
    /// with an overlong part, or points that are unusable, are not kept.
    pub fn insert(&mut self, key: CostKey, points: CostPoints) {
        if !key.is_short() || points.check().is_err() {
            return;
        }
        self.entries.retain(|entry| entry.key != key);
        self.entries.push(Entry { key, points });
        let excess = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..excess);
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes the file, making its folder first. A reader sees the old file or the new
    /// one, never a part; of two writers the last one wins.
    ///
    /// # Errors
    /// `Io`.
    pub fn store(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let document = Document { version: VERSION, entries: self.entries.clone() };
        let text = serde_json::to_vec_pretty(&document).map_err(|e| Error::io(path, e.into()))?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        }
        let temporary = temporary_beside(path);
        let written = write_new(&temporary, &text).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|e| {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            Error::io(path, e)
        })
    }
}

/// `None` when there is no file.
fn read(path: &Path) -> Result<Option<Document>, String> {
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    // A pipe would be waited for.
    if !about.is_file() {
        return Err("not a file".into());
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("more than {MAX_BYTES} bytes"));
    }
    let document: Document = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    if document.version != VERSION {
        return Err(format!("layout {}, this build reads {VERSION}", document.version));
    }
    Ok(Some(document))
}

fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{count}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// `create_new` also refuses a link that someone put in the file's place.
fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
