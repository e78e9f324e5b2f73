//! What was built: written beside the embedded code, read by the drivers and by
//! whoever wants to know why a kernel is slow.

use serde::{Deserialize, Serialize};

use crate::BuildFault;
use crate::ptxas::KernelReport;

/// All code of one kernel crate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Compiler and version, for example `nvcc 13.0.88`.
    pub toolchain: String,
    /// Hash of sources, arguments and compiler: equal keys mean equal code.
    pub key: String,
    /// One entry per embedded file.
    pub images: Vec<Image>,
}

/// One embedded file of device code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Architecture: `86`, `90a`, `gfx1151`.
    pub arch: String,
    /// What is in it.
    pub kind: ImageKind,
    /// File name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its kernels, where the compiler reported on them.
    pub kernels: Vec<KernelReport>,
}

/// What device code can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// NVIDIA machine code.
    Cubin,
    /// NVIDIA portable code, compiled by the driver.
    Ptx,
    /// An AMD code object.
    Hsaco,
}

impl Manifest {
    /// As JSON that people can read too.
    ///
    /// # Errors
    /// Only for lack of memory.
    pub fn to_json(&self) -> Result<String, BuildFault> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// From JSON.
    ///
    /// # Errors
    /// The text is no manifest.
    pub fn from_json(text: &str) -> Result<Self, BuildFault> {
        Ok(serde_json::from_str(text)?)
    }

    /// Architectures there is machine code for, each once, in order.
    pub fn architectures(&self) -> Vec<&str> {
        let mut archs = Vec::new();
        for image in self.images.iter().filter(|image| image.kind != ImageKind::Ptx) {
            if !archs.contains(&image.arch.as_str()) {
                archs.push(image.arch.as_str());
            }
        }
        archs
    }

    /// Kernels whose registers did not suffice.
    pub fn spilling(&self) -> impl Iterator<Item = &KernelReport> {
        self.images.iter().flat_map(|image| &image.kernels).filter(|kernel| kernel.spills())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let kernel = KernelReport { name: "axpy".into(), registers: 10, ..Default::default() };
        let spilt = KernelReport { name: "big".into(), spill_load_bytes: 8, ..kernel.clone() };
        let image = |arch: &str, kind, kernels: &[&KernelReport]| Image {
            arch: arch.into(),
            kind,
            file: format!("linear_{arch}.bin"),
            bytes: 4096,
            kernels: kernels.iter().map(|&k| k.clone()).collect(),
        };
        Manifest {
            toolchain: "nvcc 13.0.88".into(),
            key: "0f".into(),
            images: vec![
                image("86", ImageKind::Cubin, &[&kernel, &spilt]),
                image("90a", ImageKind::Cubin, &[&kernel]),
                image("86", ImageKind::Cubin, &[]),
                image("75", ImageKind::Ptx, &[]),
            ],
        }
    }

    #[test]
    fn a_manifest_survives_its_json() {
        let manifest = sample();
        let json = manifest.to_json().unwrap();
        assert!(json.contains("\"kind\": \"cubin\"") && json.contains("\"registers\": 10"));
        assert_eq!(Manifest::from_json(&json).unwrap(), manifest);
        for bad in ["", "{}", "[]", &json.replace("cubin", "elf"), &json.replace("4096", "-1")] {
            assert!(matches!(Manifest::from_json(bad), Err(BuildFault::Manifest(_))), "{bad}");
        }
    }

    #[test]
    fn it_tells_architectures_and_spills() {
        let manifest = sample();
        assert_eq!(manifest.architectures(), ["86", "90a"]);
        let spilling: Vec<_> = manifest.spilling().map(|k| k.name.as_str()).collect();
        assert_eq!(spilling, ["big"]);
    }
}
