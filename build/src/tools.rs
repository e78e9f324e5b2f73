//! Finding the compilers: `nvcc` for CUDA, and `hipcc` or a plain clang for HIP.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::version::{self, Version};
use crate::{BuildFault, jobs};

/// The oldest nvcc that knows every architecture that is shipped.
pub const OLDEST_NVCC: Version = Version::new(13, 0, 0);

/// The oldest clang that is tried with the HIP kernels.
pub const OLDEST_CLANG: Version = Version::new(19, 0, 0);

/// The oldest HIP release whose compiler knows gfx1151.
pub const OLDEST_HIP: Version = Version::new(6, 4, 0);

const NVCC_REMEDY: &str =
    "run build/install-nvcc.sh (no root, no GPU needed), or set CUDA_HOME to a CUDA 13 toolkit";
const HIP_REMEDY: &str = "install clang-19 and lld-19, set ROCM_PATH to ROCm 6.4 or newer, or name a compiler with \
     FORETOKEN_HIPCC";

/// What kind of compiler it is; they take different arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    /// NVIDIA's.
    Nvcc,
    /// ROCm's wrapper of its own clang.
    Hipcc,
    /// A clang that can make AMD code, without ROCm.
    Clang,
}

impl ToolKind {
    /// The command's plain name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvcc => "nvcc",
            Self::Hipcc => "hipcc",
            Self::Clang => "clang",
        }
    }

    fn version(self, text: &str) -> Option<Version> {
        match self {
            Self::Nvcc => version::of_nvcc(text),
            Self::Hipcc => version::of_hipcc(text),
            Self::Clang => version::of_clang(text),
        }
    }

    fn oldest(self) -> (Version, &'static str) {
        match self {
            Self::Nvcc => (OLDEST_NVCC, NVCC_REMEDY),
            Self::Hipcc => (OLDEST_HIP, HIP_REMEDY),
            Self::Clang => (OLDEST_CLANG, HIP_REMEDY),
        }
    }
}

/// A compiler that was found and told its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its kind.
    pub kind: ToolKind,
    /// Where it is.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

/// Where to look.
pub struct Search<'a> {
    /// The environment: value by name.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Root of the repository, whose `.local/cuda` the install script fills.
    pub root: Option<PathBuf>,
    /// Where installations lie on this system: `/usr/local/cuda` and `/opt/rocm` in `/`.
    pub system: PathBuf,
}

impl Search<'_> {
    /// Finds nvcc: `FORETOKEN_NVCC` (a file); below `CUDA_HOME`, `CUDA_PATH`, the
    /// repository's `.local/cuda` and an active Python environment, each as a toolkit or
    /// as pip lays it out (`nvidia/cu13`); on `PATH`; in `/usr/local/cuda`.
    ///
    /// # Errors
    /// There is none, or the first that is found is too old or does not run.
    pub fn nvcc(&self) -> Result<Tool, BuildFault> {
        let mut toolkits = self.folders(&["CUDA_HOME", "CUDA_PATH"]);
        toolkits.extend(self.root.iter().map(|root| root.join(".local/cuda")));
        toolkits.extend(self.folders(&["VIRTUAL_ENV"]).iter().flat_map(|v| site_packages(v)));
        let mut files = self.folders(&["FORETOKEN_NVCC"]);
        files.extend(toolkits.iter().flat_map(|toolkit| {
            ["bin/nvcc", "nvidia/cu13/bin/nvcc"].map(|nvcc| toolkit.join(nvcc))
        }));
        files.extend(self.on_path(&["nvcc"]));
        files.push(self.system.join("usr/local/cuda/bin/nvcc"));
        first(ToolKind::Nvcc.name(), files.iter().map(|f| (ToolKind::Nvcc, f)), NVCC_REMEDY)
    }

    /// Finds what compiles HIP: `FORETOKEN_HIPCC` (a file, hipcc or clang by its name);
    /// hipcc below `ROCM_PATH` and `HIP_PATH`, on `PATH`, in `/opt/rocm`; clang on `PATH`,
    /// newest name first.
    ///
    /// # Errors
    /// There is none, or the first that is found is too old or does not run.
    pub fn hip(&self) -> Result<Tool, BuildFault> {
        let mut files = self.folders(&["FORETOKEN_HIPCC"]);
        let installs = self.folders(&["ROCM_PATH", "HIP_PATH"]);
        files.extend(installs.iter().map(|rocm| rocm.join("bin/hipcc")));
        files.extend(self.on_path(&["hipcc"]));
        files.push(self.system.join("opt/rocm/bin/hipcc"));
        files.extend(self.on_path(&["clang-21", "clang-20", "clang-19", "clang"]));
        let kinds = files.iter().map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            (if name.contains("clang") { ToolKind::Clang } else { ToolKind::Hipcc }, file)
        });
        first("hipcc or clang", kinds, HIP_REMEDY)
    }

    /// Values of variables that are set and not empty.
    fn folders(&self, names: &[&str]) -> Vec<PathBuf> {
        let values = names.iter().filter_map(|name| (self.variable)(name));
        values.filter(|value| !value.is_empty()).map(PathBuf::from).collect()
    }

    /// The commands on `PATH`, all of the first name first.
    fn on_path(&self, names: &[&str]) -> Vec<PathBuf> {
        let path = (self.variable)("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
        places.filter(|file| file.is_file()).collect()
    }
}

/// `lib/python3.*/site-packages` of a Python environment.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(environment.join("lib")) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path().join("site-packages")).collect();
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

/// The first file that is there, checked; what was looked for if none is.
fn first<'a>(
    tool: &'static str,
    files: impl Iterator<Item = (ToolKind, &'a PathBuf)> + Clone,
    remedy: &'static str,
) -> Result<Tool, BuildFault> {
    let Some((kind, path)) = files.clone().find(|(_, file)| file.is_file()) else {
        let mut looked: Vec<String> = files.map(|(_, f)| f.display().to_string()).collect();
        looked.push("PATH".to_owned());
        return Err(BuildFault::NoTool { tool, looked, remedy });
    };
    let shown = path.display().to_string();
    let said = jobs::command(Command::new(path).arg("--version"));
    let Some(version) = said.as_ref().ok().and_then(|text| kind.version(text)) else {
        let words = said.unwrap_or_else(|error| error.to_string());
        let words = words.lines().next().unwrap_or("nothing").to_owned();
        return Err(BuildFault::NotATool { path: shown, tool: kind.name(), words });
    };
    let (oldest, remedy) = kind.oldest();
    if version < oldest {
        return Err(BuildFault::TooOld { path: shown, found: version, oldest, remedy });
    }
    Ok(Tool { kind, path: path.clone(), version })
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NVCC: &str = "Cuda compilation tools, release 13.0, V13.0.88";

    /// A folder to look in, with commands that tell a version.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, name: &str, says: &str) -> PathBuf {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Written by another process: a file that this one holds open for writing, or
            // that a command just being started has inherited, may not be run.
            let script = "printf '#!/bin/sh\\necho \"%s\"\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
            let mut sh = Command::new("sh");
            let status = sh.args(["-c", script, "sh"]).arg(&path).arg(says).status().unwrap();
            assert!(status.success());
            path
        }

        /// Looks with these variables set to places below this folder.
        fn look<T>(&self, set: &[(&str, &str)], with: impl Fn(&Search<'_>) -> T) -> T {
            let set: HashMap<&str, OsString> =
                set.iter().map(|(name, value)| (*name, self.path(value).into())).collect();
            let variable = |name: &str| set.get(name).cloned();
            let root = Some(self.path("repository"));
            with(&Search { variable: &variable, root, system: self.path("system") })
        }

        fn nvcc(&self, set: &[(&str, &str)]) -> Result<Tool, BuildFault> {
            self.look(set, |search| search.nvcc())
        }

        fn hip(&self, set: &[(&str, &str)]) -> Result<Tool, BuildFault> {
            self.look(set, |search| search.hip())
        }
    }

    #[test]
    fn nvcc_is_found_in_every_place_the_nearest_first() {
        let place = Place::new();
        let set = [
            ("FORETOKEN_NVCC", "named/nvcc"),
            ("CUDA_HOME", "home"),
            ("CUDA_PATH", "pip"),
            ("VIRTUAL_ENV", "venv"),
            ("PATH", "bin"),
        ];
        let last_first = [
            "system/usr/local/cuda/bin/nvcc",
            "bin/nvcc",
            "venv/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc",
            "repository/.local/cuda/nvidia/cu13/bin/nvcc",
            "pip/nvidia/cu13/bin/nvcc",
            "home/bin/nvcc",
            "named/nvcc",
        ];
        for name in last_first {
            let path = place.put(name, NVCC);
            let tool = place.nvcc(&set).unwrap();
            assert_eq!((tool.path, tool.version), (path, Version::new(13, 0, 88)));
        }
    }

    #[test]
    fn no_nvcc_is_one_line_that_says_how_to_get_one() {
        let place = Place::new();
        let fault = place.nvcc(&[("PATH", "bin"), ("CUDA_HOME", "home")]).unwrap_err();
        let line = fault.to_string();
        assert!(line.contains("build/install-nvcc.sh") && !line.contains('\n'), "{line}");
        assert!(line.contains("home/bin/nvcc") && line.contains("PATH"), "{line}");
    }

    #[test]
    fn a_compiler_that_is_old_or_another_is_refused_not_passed_over() {
        let place = Place::new();
        place.put("bin/nvcc", NVCC);
        place.put("old/bin/nvcc", "Cuda compilation tools, release 12.4, V12.4.131");
        let set = [("PATH", "bin"), ("CUDA_HOME", "old")];
        let fault = place.nvcc(&set).unwrap_err().to_string();
        assert!(fault.contains("version 12.4.131, and 13.0.0 or newer is needed"), "{fault}");
        place.put("old/bin/nvcc", "hello");
        assert!(
            matches!(place.nvcc(&set), Err(BuildFault::NotATool { words, .. }) if words == "hello")
        );
        fs::set_permissions(place.path("old/bin/nvcc"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(place.nvcc(&set), Err(BuildFault::NotATool { .. })));
    }

    #[test]
    fn hip_code_is_compiled_by_hipcc_or_else_by_clang() {
        let place = Place::new();
        let set = [("PATH", "bin"), ("ROCM_PATH", "rocm")];
        let fault = place.hip(&set).unwrap_err().to_string();
        assert!(fault.contains("install clang-19 and lld-19"), "{fault}");
        place.put("bin/clang", "Debian clang version 14.0.6");
        assert!(matches!(place.hip(&set), Err(BuildFault::TooOld { .. })));
        let clang = place.put("bin/clang-19", "Debian clang version 19.1.7 (3)");
        let tool = place.hip(&set).unwrap();
        assert_eq!((tool.kind, tool.path), (ToolKind::Clang, clang));
        let hipcc = place.put("rocm/bin/hipcc", "HIP version: 7.0.51831-a3e329ad8");
        let tool = place.hip(&set).unwrap();
        assert_eq!((tool.kind, tool.path), (ToolKind::Hipcc, hipcc));
        assert_eq!(tool.version, Version::new(7, 0, 51831));
        let named = place.hip(&[("FORETOKEN_HIPCC", "bin/clang-19")]).unwrap();
        assert_eq!(named.kind, ToolKind::Clang);
    }
}
