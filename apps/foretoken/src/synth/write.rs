//! Writing the file: every thread makes parts of a megabyte and puts them in their places.
//! The kernel lets the writers of one file take turns; making the parts takes no turns.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result, bail};
use foretoken::generate::Cancel;

use super::{Plan, SynthFault};
use crate::failure::shown;
use crate::output::size;

/// Bytes a thread makes at a time.
const PART: usize = 1 << 20;
/// Threads at most, which bounds the buffers to 64 MB.
const MAX_THREADS: usize = 64;

/// A part of a tensor.
struct Part {
    tensor: usize,
    /// Number of its first block.
    first: u64,
    /// Where it goes in the file.
    at: u64,
    bytes: usize,
}

/// Writes the file under another name and gives it its own when all of it is there. A file
/// that exists is replaced only with `force`. `progress` is told bytes done and total.
///
/// # Errors
/// When the file exists or can not be written; `Interrupted`. What was written is removed.
pub(crate) fn write(
    plan: &Plan,
    path: &Path,
    threads: usize,
    force: bool,
    cancel: &Cancel,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    check(path, force)?;
    let total = plan.layout.len;
    let named = |error: io::Error| describe(error, total);
    let unfinished = Unfinished::create(path).map_err(named).with_context(|| shown(path))?;
    fill(plan, &unfinished.file, threads, cancel, progress).with_context(|| shown(path))?;
    unfinished.keep(path).map_err(named).with_context(|| shown(path))
}

/// Refuses what must not be written over.
fn check(path: &Path, force: bool) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => bail!("{}: is no file", shown(path)),
        Ok(_) if !force => bail!("{}: exists; --force writes over it", shown(path)),
        _ => Ok(()),
    }
}

fn fill(
    plan: &Plan,
    file: &File,
    threads: usize,
    cancel: &Cancel,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let total = plan.layout.len;
    file.set_len(total).map_err(|e| describe(e, total))?;
    write_at(file, &plan.layout.head, 0).map_err(|e| describe(e, total))?;
    let parts = parts(plan);
    let crew =
        Crew { plan, file, parts: &parts, next: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    let threads = threads.clamp(1, MAX_THREADS).min(parts.len().max(1));
    let (sender, done) = mpsc::channel();
    let mut written = plan.layout.head.len() as u64;
    thread::scope(|scope| {
        for n in 0..threads {
            let (crew, sender) = (&crew, sender.clone());
            let spawned = thread::Builder::new().spawn_scoped(scope, move || crew.work(&sender));
            // With some threads it only takes longer.
            if n == 0 {
                spawned?;
            }
        }
        drop(sender);
        let mut outcome = Ok(());
        for result in done {
            match result {
                Ok(bytes) => written += bytes as u64,
                Err(error) if outcome.is_ok() => outcome = Err(describe(error, total).into()),
                Err(_) => {}
            }
            if cancel.is_cancelled() && outcome.is_ok() {
                outcome = Err(SynthFault::Interrupted.into());
            }
            crew.stop.fetch_or(outcome.is_err(), Ordering::Relaxed);
            progress(written, total);
        }
        outcome
    })
}

/// What all threads work on.
struct Crew<'a> {
    plan: &'a Plan,
    file: &'a File,
    parts: &'a [Part],
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Crew<'_> {
    /// Makes parts until there are no more, and tells of each.
    fn work(&self, done: &Sender<io::Result<usize>>) {
        let mut buffer = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let Some(part) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            buffer.resize(part.bytes, 0);
            if let Some(filler) = self.plan.fillers.get(part.tensor) {
                filler.fill(part.first, &mut buffer);
            }
            let written = write_at(self.file, &buffer, part.at).map(|()| part.bytes);
            // Nobody listens only when all is over.
            if written.is_err() | done.send(written).is_err() {
                return;
            }
        }
    }
}

/// Cuts the tensors in parts of whole blocks.
fn parts(plan: &Plan) -> Vec<Part> {
    let mut parts = Vec::new();
    let tensors = plan.layout.tensors.iter().zip(&plan.fillers).enumerate();
    for (tensor, (place, filler)) in tensors {
        let (_, block) = filler.block();
        let blocks = (PART / block).max(1) as u64;
        let step = blocks * block as u64;
        let (mut first, mut done) = (0, 0);
        while done < place.bytes {
            let bytes = step.min(place.bytes - done);
            parts.push(Part { tensor, first, at: place.start + done, bytes: bytes as usize });
            first += blocks;
            done += bytes;
        }
    }
    parts
}

/// Says how much room is needed where there is too little.
fn describe(error: io::Error, needed: u64) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            let text = format!("{} are needed: {error}", size(needed));
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(n..).unwrap_or_default();
        at += n as u64;
    }
    Ok(())
}

/// A file under its working name, removed unless it is kept.
struct Unfinished {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Unfinished {
    /// Beside the file it will be, since renaming does not lead across disks.
    fn create(wanted: &Path) -> io::Result<Self> {
        let name = wanted.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let path = wanted.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file, kept: false })
    }

    fn keep(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about it here.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::{Recipe, preset};

    fn plan(seed: u64) -> Plan {
        let preset = preset("nano").unwrap();
        let mut shape = preset.shape;
        shape.layers = 4;
        let recipe = Recipe { name: preset.name, shape, quant: preset.quant, seed };
        recipe.plan(Path::new("x"), None).unwrap()
    }

    fn bytes(seed: u64, threads: usize) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gguf");
        let mut last = (0, 1);
        let mut progress = |done, total| last = (done, total);
        write(&plan(seed), &path, threads, false, &Cancel::default(), &mut progress).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(last.1 == bytes.len() as u64 && last.0 > last.1 - 10_000, "{last:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        bytes
    }

    #[test]
    fn bytes_follow_from_the_seed_alone() {
        let one = bytes(7, 1);
        assert!(one == bytes(7, 4));
        assert!(one != bytes(8, 4));
    }

    #[test]
    fn parts_cover_every_tensor_once() {
        let plan = plan(0);
        let parts = parts(&plan);
        for (i, place) in plan.layout.tensors.iter().enumerate() {
            let mut at = place.start;
            for part in parts.iter().filter(|part| part.tensor == i) {
                assert!(part.at == at && part.bytes > 0 && part.bytes <= PART);
                at += part.bytes as u64;
            }
            assert_eq!(at, place.start + place.bytes);
        }
        assert!(parts.len() > plan.layout.tensors.len());
    }

    #[test]
    fn an_interrupted_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        let path = dir.path().join("a.gguf");
        let error = write(&plan(0), &path, 2, false, &cancel, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&SynthFault::Interrupted));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
