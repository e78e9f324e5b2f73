//! Finding models: a path, a name under the model path, or baked into the binary.

#[cfg(feature = "embed-models")]
mod embedded;

use std::env;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};
use foretoken::format::SharedBytes;

use crate::failure::shown;

/// The model used when none is named.
pub(crate) const DEFAULT: &str = "nano-code-Q4_K_M.gguf";
/// The draft model that belongs to it.
pub(crate) const DEFAULT_DRAFT: &str = "nano-dflash-Q8_0.gguf";
/// Folders with models, separated as in `PATH`.
pub(crate) const VARIABLE: &str = "FORETOKEN_MODELS";

/// Where a model is.
#[derive(Clone, Debug)]
pub(crate) enum Located {
    /// A file or folder.
    Path(PathBuf),
    /// Inside this binary.
    #[cfg_attr(not(feature = "embed-models"), allow(dead_code))]
    Embedded {
        /// File name it was baked in from.
        name: &'static str,
        /// Its bytes.
        bytes: SharedBytes,
    },
}

/// Finds a model: `asked` as a path, then as a name under the model path, or the default
/// model when nothing is asked for. Models baked in are the last resort.
///
/// # Errors
/// When nothing is found, saying where was looked.
pub(crate) fn locate(asked: Option<&Path>) -> Result<Located> {
    locate_for("--model", asked)
}

/// The same for what another flag names.
///
/// # Errors
/// As [`locate`].
pub(crate) fn locate_for(flag: &str, asked: Option<&Path>) -> Result<Located> {
    let places = places(&Surroundings::of_process());
    let name = match asked {
        Some(path) if path.exists() => return Ok(Located::Path(path.to_owned())),
        Some(path) if !is_name(path) => bail!("{}: no such file or folder", shown(path)),
        Some(name) => name,
        None => Path::new(DEFAULT),
    };
    if let Some(path) = find(name, &places) {
        return Ok(Located::Path(path));
    }
    if let Some(embedded) = embedded(name) {
        return Ok(embedded);
    }
    let names: Vec<_> = places.iter().map(|p| shown(p)).collect();
    let looked = if names.is_empty() { "(nothing)".to_owned() } else { names.join(", ") };
    let hint = format!("give {flag} FILE or set {VARIABLE}");
    bail!("{}: no such file, and no model of that name in {looked}; {hint}", shown(name))
}

/// Whether it can be looked up: relative, without `.` or `..` in it.
fn is_name(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The first place that has the model, with or without `.gguf` in the name asked for.
fn find(name: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    let mut with_extension = OsString::from(name);
    with_extension.push(".gguf");
    let names = [name, Path::new(&with_extension)];
    places.iter().find_map(|place| {
        if place.is_file() {
            let own = place.file_name().map(Path::new);
            return names.iter().any(|&n| own == Some(n)).then(|| place.clone());
        }
        names.iter().map(|n| place.join(n)).find(|candidate| candidate.exists())
    })
}

#[cfg(feature = "embed-models")]
fn embedded(name: &Path) -> Option<Located> {
    let found = embedded::MODELS.iter().find(|(own, _)| {
        name == Path::new(own) || Some(name.as_os_str()) == Path::new(own).file_stem()
    });
    found.map(|&(name, bytes)| {
        let bytes = SharedBytes::new(std::sync::Arc::new(bytes));
        Located::Embedded { name, bytes }
    })
}

#[cfg(not(feature = "embed-models"))]
fn embedded(_name: &Path) -> Option<Located> {
    None
}

/// What the search depends on.
struct Surroundings {
    variable: Option<OsString>,
    executable: Option<PathBuf>,
    /// Folders whose workspace is looked for after that of the executable.
    starts: Vec<PathBuf>,
}

impl Surroundings {
    fn of_process() -> Self {
        // Links are followed: an installed link leads to the folder with the models.
        let executable = env::current_exe().ok().map(|exe| exe.canonicalize().unwrap_or(exe));
        let by_cargo = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        // A binary that carries its models is made for other machines than this one.
        let built_in = (!cfg!(feature = "embed-models")).then(|| env!("CARGO_MANIFEST_DIR").into());
        let starts = [by_cargo, env::current_dir().ok(), built_in];
        let starts = starts.into_iter().flatten().collect();
        Self { variable: env::var_os(VARIABLE), executable, starts }
    }
}

/// The folders (and single files) of the model path, in the order they are searched.
fn places(around: &Surroundings) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut add = |place: PathBuf| {
        if place.exists() && !places.contains(&place) {
            places.push(place);
        }
    };
    let listed = around.variable.as_ref().map(|v| env::split_paths(v).collect::<Vec<_>>());
    let listed = listed.unwrap_or_default().into_iter();
    listed.filter(|place| !place.as_os_str().is_empty()).for_each(&mut add);
    let beside = around.executable.as_deref().and_then(Path::parent);
    if let Some(folder) = beside {
        [folder.join("models/nano"), folder.join("models"), folder.to_owned()]
            .into_iter()
            .for_each(&mut add);
    }
    for start in beside.into_iter().chain(around.starts.iter().map(PathBuf::as_path)) {
        let mut workspace = start.ancestors().filter(|f| f.join("Cargo.toml").is_file());
        if let Some(models) = workspace.find_map(nano_of) {
            add(models);
        }
    }
    places
}

fn nano_of(workspace: &Path) -> Option<PathBuf> {
    let folder = workspace.join("models/nano");
    folder.is_dir().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }

    #[test]
    fn the_variable_goes_before_the_executable_and_that_before_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        touch(&root.join("Cargo.toml"));
        let workspace = root.join("models/nano/m.gguf");
        let beside = root.join("target/models/nano/m.gguf");
        let listed = root.join("listed/m.gguf");
        let mut around = Surroundings {
            variable: Some(root.join("listed").into()),
            executable: Some(root.join("target/foretoken")),
            starts: vec![root.join("apps/foretoken")],
        };
        touch(&workspace);
        let found = |around: &Surroundings| find(Path::new("m"), &places(around));
        assert_eq!(found(&around).as_ref(), Some(&workspace));
        touch(&beside);
        assert_eq!(found(&around).as_ref(), Some(&beside));
        touch(&listed);
        assert_eq!(found(&around).as_ref(), Some(&listed));
        // An entry may be a single file; it answers to its own name only.
        around.variable = Some(workspace.clone().into());
        assert_eq!(found(&around).as_ref(), Some(&workspace));
        assert_eq!(find(Path::new("other"), &places(&around)), None);
    }

    #[test]
    fn only_plain_relative_paths_are_names() {
        for name in ["m", "m.gguf", "sub/m.gguf"] {
            assert!(is_name(Path::new(name)), "{name}");
        }
        for path in ["", "/m", "./m", "../m", "a/../m"] {
            assert!(!is_name(Path::new(path)), "{path}");
        }
    }
}
