//! Which of the embedded images a device gets: machine code of its architecture, or else
//! the newest portable code that is not newer than the device.

use std::fmt;

use foretoken_kernels_cuda::{Image, ImageKind, architectures, images};

/// The variable that makes a device load the portable code of one architecture, so that
/// its source path runs on another: `FORETOKEN_FORCE_PTX=86`.
pub(crate) const FORCE_PTX: &str = "FORETOKEN_FORCE_PTX";

/// An architecture as nvcc names it: `86`, `90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// Ten times the major plus the minor compute capability.
    pub(crate) number: u32,
    /// With instructions that no other architecture has.
    pub(crate) specific: bool,
}

impl Target {
    /// From nvcc's name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (digits, specific) = match name.strip_suffix('a') {
            Some(digits) => (digits, true),
            None => (name, false),
        };
        Some(Self { number: digits.parse().ok()?, specific })
    }

    /// The architecture of a device from the engine's name for it: `sm_86`.
    pub(crate) fn of_device(arch: &str) -> Option<Self> {
        Self::parse(arch.strip_prefix("sm_")?).filter(|target| !target.specific)
    }

    /// Whether machine code for this target runs on a device: of the same major version
    /// and no newer, or for an architecture-specific target, the very one (CUDA C++
    /// Programming Guide, binary compatibility).
    fn runs_on(self, device: Self) -> bool {
        let same_major = self.number / 10 == device.number / 10;
        self.number == device.number
            || (!self.specific && same_major && self.number < device.number)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.specific { "a" } else { "" })
    }
}

/// The code that a device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// What it was compiled for: kernels choose their variants by this, not by the device.
    pub(crate) target: Target,
    /// Machine or portable.
    pub(crate) kind: ImageKind,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.kind == ImageKind::Machine { "sm" } else { "compute" };
        write!(f, "{prefix}_{}", self.target)
    }
}

/// What this build has code for, and which of it may be used.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    images: &'static [Image],
    names: &'static [&'static str],
    force: Option<String>,
}

impl Built {
    /// Of this build, with all code or the portable code of one architecture.
    pub(crate) fn new(force: Option<String>) -> Self {
        Self { images: images(), names: architectures(), force }
    }

    /// With images of one's own.
    #[cfg(test)]
    pub(crate) fn of(
        images: &'static [Image],
        names: &'static [&'static str],
        force: Option<&str>,
    ) -> Self {
        Self { images, names, force: force.map(str::to_owned) }
    }

    /// Architectures there is machine code for.
    pub(crate) fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// What there is, in words: architectures, then those with portable code.
    pub(crate) fn listed(&self) -> String {
        let of = |kind| {
            let mut names: Vec<&str> = Vec::new();
            for image in self.images.iter().filter(|image| image.kind == kind) {
                if !names.contains(&image.arch) {
                    names.push(image.arch);
                }
            }
            names.join(", ")
        };
        let (machine, portable) = (of(ImageKind::Machine), of(ImageKind::Portable));
        match (machine.is_empty(), portable.is_empty(), &self.force) {
            (true, true, _) => "none".to_owned(),
            (_, _, Some(force)) => {
                let have = if portable.is_empty() { "none" } else { &portable };
                format!("{FORCE_PTX}={force} allows PTX of that one only, and there is {have}")
            }
            (_, true, None) => machine,
            (_, false, None) => format!("{machine}; PTX of {portable}"),
        }
    }

    /// The code for a device of the engine's `arch` (`sm_86`); none if nothing runs on it.
    pub(crate) fn code(&self, arch: &str) -> Option<Code> {
        let device = Target::of_device(arch)?;
        let targets = |kind| {
            let images = self.images.iter().filter(move |image| image.kind == kind);
            images.filter_map(|image| Target::parse(image.arch))
        };
        let portable = targets(ImageKind::Portable).filter(|t| t.number <= device.number);
        if let Some(force) = &self.force {
            let forced = Target::parse(force);
            let target = portable.filter(|target| Some(*target) == forced).max()?;
            return Some(Code { target, kind: ImageKind::Portable });
        }
        let machine = targets(ImageKind::Machine).filter(|target| target.runs_on(device)).max();
        let machine = machine.map(|target| Code { target, kind: ImageKind::Machine });
        machine.or_else(|| portable.max().map(|target| Code { target, kind: ImageKind::Portable }))
    }

    /// The image of one family.
    pub(crate) fn image(&self, family: &str, code: Code) -> Option<&'static Image> {
        let wanted = |image: &&Image| {
            image.family == family
                && image.kind == code.kind
                && Target::parse(image.arch) == Some(code.target)
        };
        self.images.iter().find(wanted)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const fn image(arch: &'static str, kind: ImageKind) -> Image {
        Image { family: "stamp", arch, kind, bytes: &[] }
    }

    pub(crate) static NAMES: &[&str] = &["75", "80", "86", "90a", "120a"];
    pub(crate) static IMAGES: &[Image] = &[
        image("75", ImageKind::Machine),
        image("75", ImageKind::Portable),
        image("80", ImageKind::Machine),
        image("80", ImageKind::Portable),
        image("86", ImageKind::Machine),
        image("86", ImageKind::Portable),
        image("90a", ImageKind::Machine),
        image("120a", ImageKind::Machine),
    ];

    fn chosen(arch: &str, force: Option<&str>) -> Option<String> {
        Built::of(IMAGES, NAMES, force).code(arch).map(|code| code.to_string())
    }

    #[test]
    fn machine_code_comes_first_then_the_newest_portable_code() {
        let cases = [
            ("sm_75", "sm_75"),
            ("sm_80", "sm_80"),
            ("sm_86", "sm_86"),
            ("sm_87", "sm_86"),
            ("sm_89", "sm_86"),
            ("sm_90", "sm_90a"),
            ("sm_100", "compute_86"),
            ("sm_120", "sm_120a"),
            ("sm_121", "compute_86"),
        ];
        for (device, code) in cases {
            assert_eq!(chosen(device, None).as_deref(), Some(code), "{device}");
        }
        for none in ["sm_70", "sm_61", "gfx90", "sm_", "sm_90a", ""] {
            assert_eq!(chosen(none, None), None, "{none}");
        }
        assert_eq!(Built::of(&[], &[], None).code("sm_90"), None);
    }

    #[test]
    fn forced_code_is_that_or_none() {
        assert_eq!(chosen("sm_90", Some("75")).as_deref(), Some("compute_75"));
        assert_eq!(chosen("sm_86", Some("86")).as_deref(), Some("compute_86"));
        for (device, force) in [("sm_80", "86"), ("sm_90", "90a"), ("sm_90", "89"), ("sm_90", "x")]
        {
            assert_eq!(chosen(device, Some(force)), None, "{device} {force}");
        }
    }

    #[test]
    fn what_there_is_can_be_told_and_found() {
        let built = Built::of(IMAGES, NAMES, None);
        assert_eq!(built.listed(), "75, 80, 86, 90a, 120a; PTX of 75, 80, 86");
        let forced = Built::of(IMAGES, NAMES, Some("89")).listed();
        assert!(forced.contains("FORETOKEN_FORCE_PTX=89") && forced.contains("75, 80, 86"));
        assert_eq!(Built::of(&[], &[], Some("89")).listed(), "none");
        let code = built.code("sm_90").unwrap();
        assert_eq!(built.image("stamp", code).map(|image| image.arch), Some("90a"));
        assert!(built.image("other", code).is_none());
    }
}
