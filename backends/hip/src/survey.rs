//! One look at the machine: version, devices, and everything that is wrong.

use foretoken::device::DeviceInfo;

use crate::api::NO_DEVICE;
use crate::calls::Calls;
use crate::facts::{EMBEDDED, covered};
use crate::problem::{Problem, version};
use crate::surroundings::{NODE, Node, Surroundings};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    /// Version of the runtime, for example `6.4.43484`; none if it could not be asked.
    pub(crate) version: Option<String>,
    /// Devices, in the runtime's order.
    pub(crate) devices: Vec<DeviceInfo>,
    /// What is wrong, causes first.
    pub(crate) problems: Vec<Problem>,
}

impl Survey {
    /// Asks the runtime, or explains why there is none to ask.
    pub(crate) fn take(calls: Result<&dyn Calls, Problem>, around: &Surroundings) -> Self {
        let mut survey = Self::default();
        match calls {
            Ok(calls) => survey.ask(calls),
            Err(problem) => survey.problems.push(problem),
        }
        if survey.devices.is_empty() {
            survey.problems.extend(explain(around.node));
        }
        if let Some(value) = &around.overridden {
            survey.problems.push(Problem::Overridden { value: value.clone() });
        }
        let hidden = around.hiding.iter();
        survey.problems.extend(
            hidden.map(|(variable, value)| Problem::Hidden { variable, value: value.clone() }),
        );
        survey
    }

    fn ask(&mut self, calls: &dyn Calls) {
        let count = calls.init().and_then(|()| calls.device_count());
        match calls.runtime_version() {
            Ok(number) => self.version = Some(version(number)),
            // A runtime that did not start has said so already.
            Err(_) if count.is_err() => {}
            Err(fault) => self.problems.push(Problem::Call { fault }),
        }
        match count {
            Ok(0) => self.problems.push(Problem::NoDevice),
            Ok(count) => (0..count).for_each(|index| self.device(calls, index)),
            Err(fault) if fault.status == NO_DEVICE => self.problems.push(Problem::NoDevice),
            Err(fault) => self.problems.push(Problem::Call { fault }),
        }
    }

    fn device(&mut self, calls: &dyn Calls, index: usize) {
        let facts = match calls.facts(index) {
            Ok(facts) => facts,
            Err(fault) => return self.problems.push(Problem::Device { index, fault }),
        };
        let free = calls.free_memory(index).unwrap_or_else(|fault| {
            self.problems.push(Problem::FreeMemory { index, fault });
            0
        });
        let info = facts.info(index, free);
        if !covered(&info.arch, EMBEDDED) {
            self.problems.push(Problem::NoKernels {
                index,
                name: info.name.clone(),
                arch: info.arch.clone(),
                embedded: EMBEDDED,
            });
        }
        self.devices.push(info);
    }
}

/// What the device node adds to the story of a missing runtime or device. Unlike with
/// NVIDIA's, the kernel's half comes with Linux and the runtime does not, so an open
/// node beside a missing library is no surprise.
fn explain(node: Node) -> Option<Problem> {
    match node {
        Node::Missing => Some(Problem::NodeMissing { node: NODE }),
        Node::Denied => Some(Problem::NodeDenied { node: NODE }),
        Node::Open | Node::Unknown => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::calls::Fault;
    use crate::facts::{Facts, tests::strix_halo};

    /// Answers in the runtime's place.
    pub(crate) struct Fake {
        pub(crate) version: Result<i32, Fault>,
        pub(crate) init: Result<(), Fault>,
        pub(crate) devices: Vec<(Result<Facts, Fault>, Result<u64, Fault>)>,
    }

    impl Fake {
        pub(crate) fn with(devices: usize) -> Self {
            let device = (Ok(strix_halo()), Ok(90 << 30));
            Self { version: Ok(60_443_484), init: Ok(()), devices: vec![device; devices] }
        }
    }

    impl Calls for Fake {
        fn runtime_version(&self) -> Result<i32, Fault> {
            self.version.clone()
        }

        fn init(&self) -> Result<(), Fault> {
            self.init.clone()
        }

        fn device_count(&self) -> Result<usize, Fault> {
            Ok(self.devices.len())
        }

        fn facts(&self, index: usize) -> Result<Facts, Fault> {
            self.devices[index].0.clone()
        }

        fn free_memory(&self, index: usize) -> Result<u64, Fault> {
            self.devices[index].1.clone()
        }
    }

    fn fault(call: &'static str, status: u32) -> Fault {
        Fault { call, status, words: format!("words of {status}") }
    }

    pub(crate) fn quiet() -> Surroundings {
        Surroundings { hiding: Vec::new(), overridden: None, node: Node::Open }
    }

    fn lines(survey: &Survey) -> Vec<String> {
        survey.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn devices_are_listed_and_lack_of_kernels_is_said() {
        let survey = Survey::take(Ok(&Fake::with(2)), &quiet());
        assert_eq!(survey.version.as_deref(), Some("6.4.43484"));
        assert_eq!(survey.devices.len(), 2);
        assert_eq!((survey.devices[1].index, survey.devices[1].memory_free), (1, 90 << 30));
        assert_eq!(survey.problems.len(), 2);
        assert!(matches!(survey.problems[1], Problem::NoKernels { index: 1, .. }));
    }

    #[test]
    fn a_device_that_cannot_be_asked_is_left_out_and_the_rest_stay() {
        let mut fake = Fake::with(3);
        fake.devices[1].0 = Err(fault("hipDeviceGetAttribute", 101));
        fake.devices[2].1 = Err(fault("hipMemGetInfo", 2));
        let survey = Survey::take(Ok(&fake), &quiet());
        let listed: Vec<_> = survey.devices.iter().map(|d| (d.index, d.memory_free)).collect();
        assert_eq!(listed, [(0, 90 << 30), (2, 0)]);
        let lines = lines(&survey).join("\n");
        assert!(lines.contains("hip:1 is left out: hipDeviceGetAttribute failed: words of 101"));
        assert!(lines.contains("hip:2: free memory is unknown: hipMemGetInfo"));
    }

    #[test]
    fn a_runtime_that_does_not_start_is_quoted_once() {
        let fake = Fake {
            init: Err(fault("hipInit", 3)),
            version: Err(fault("hipRuntimeGetVersion", 3)),
            ..Fake::with(1)
        };
        let around = Surroundings { node: Node::Denied, ..quiet() };
        let survey = Survey::take(Ok(&fake), &around);
        assert!(survey.version.is_none() && survey.devices.is_empty());
        let lines = lines(&survey);
        assert_eq!((lines.len(), lines[0].as_str()), (2, "hipInit failed: words of 3"));
        assert!(lines[1].starts_with("/dev/kfd may not be opened"), "{lines:?}");
    }

    #[test]
    fn no_device_is_one_problem_however_the_runtime_says_it() {
        let none = Fake { init: Err(fault("hipInit", NO_DEVICE)), ..Fake::with(0) };
        for fake in [none, Fake::with(0)] {
            let around = Surroundings { node: Node::Missing, ..quiet() };
            let survey = Survey::take(Ok(&fake), &around);
            let expected = [Problem::NoDevice, Problem::NodeMissing { node: NODE }];
            assert_eq!(survey.problems, expected);
        }
    }

    #[test]
    fn a_runtime_without_a_version_still_lists_its_devices() {
        let fake = Fake { version: Err(fault("hipRuntimeGetVersion", 1)), ..Fake::with(1) };
        let survey = Survey::take(Ok(&fake), &quiet());
        assert!(matches!(survey.problems[0], Problem::Call { .. }) && survey.version.is_none());
        assert_eq!(survey.devices.len(), 1);
    }

    #[test]
    fn variables_in_force_are_said_whether_or_not_there_are_devices() {
        let around = Surroundings {
            hiding: vec![("HIP_VISIBLE_DEVICES", "1".to_owned())],
            overridden: Some("11.0.0".to_owned()),
            ..quiet()
        };
        let survey = Survey::take(Ok(&Fake::with(1)), &around);
        let said = lines(&survey).join("\n");
        assert!(said.contains("HSA_OVERRIDE_GFX_VERSION=11.0.0 is in force"), "{said}");
        assert!(said.contains("HIP_VISIBLE_DEVICES=1 is set"), "{said}");
        let missing = Err(Problem::LibraryMissing { tried: vec!["libamdhip64.so.7".into()] });
        let survey = Survey::take(missing, &around);
        assert!(survey.devices.is_empty() && survey.version.is_none());
        assert_eq!(survey.problems.len(), 3);
    }
}
