//! One look at the machine: version, devices, and everything that is wrong.

use foretoken::device::DeviceInfo;

use crate::api::NO_DEVICE;
use crate::calls::Calls;
use crate::device::Built;
use crate::problem::{OLDEST_DRIVER, Problem, version};
use crate::surroundings::{NODE, Node, Surroundings};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    /// CUDA version of the driver, for example `13.0`; none if it could not be asked.
    pub(crate) version: Option<String>,
    /// Whether the driver is older than the code of this build.
    pub(crate) too_old: bool,
    /// Devices, in the driver's order.
    pub(crate) devices: Vec<DeviceInfo>,
    /// What is wrong, causes first.
    pub(crate) problems: Vec<Problem>,
}

impl Survey {
    /// Asks the driver, or explains why there is none to ask.
    pub(crate) fn take(
        calls: Result<&dyn Calls, Problem>,
        around: &Surroundings,
        built: &Built,
    ) -> Self {
        let mut survey = Self::default();
        let library = match calls {
            Ok(calls) => {
                survey.ask(calls, built);
                true
            }
            Err(problem) => {
                survey.problems.push(problem);
                false
            }
        };
        if survey.devices.is_empty() {
            survey.problems.extend(explain(around.node, library));
        }
        let hidden = around.hiding.iter();
        survey.problems.extend(
            hidden.map(|(variable, value)| Problem::Hidden { variable, value: value.clone() }),
        );
        survey
    }

    fn ask(&mut self, calls: &dyn Calls, built: &Built) {
        match calls.driver_version() {
            Ok(number) => {
                self.version = Some(version(number));
                if number < OLDEST_DRIVER {
                    self.too_old = true;
                    self.problems.push(Problem::DriverTooOld { found: number });
                }
            }
            Err(fault) => self.problems.push(Problem::Call { fault }),
        }
        match calls.init().and_then(|()| calls.device_count()) {
            Ok(0) => self.problems.push(Problem::NoDevice),
            Ok(count) => (0..count).for_each(|index| self.device(calls, built, index)),
            Err(fault) if fault.status == NO_DEVICE => self.problems.push(Problem::NoDevice),
            Err(fault) => self.problems.push(Problem::Call { fault }),
        }
    }

    fn device(&mut self, calls: &dyn Calls, built: &Built, index: usize) {
        let facts = match calls.facts(index) {
            Ok(facts) => facts,
            Err(fault) => return self.problems.push(Problem::Device { index, fault }),
        };
        let free = calls.free_memory(index).unwrap_or_else(|fault| {
            self.problems.push(Problem::FreeMemory { index, fault });
            0
        });
        let info = facts.info(index, free);
        if built.code(&info.arch).is_none() {
            self.problems.push(Problem::NoKernels {
                index,
                name: info.name.clone(),
                arch: info.arch.clone(),
                built: built.listed(),
            });
        }
        self.devices.push(info);
    }
}

/// What the device node adds to the story of a missing library or device.
fn explain(node: Node, library: bool) -> Option<Problem> {
    match (node, library) {
        (Node::Missing, true) => Some(Problem::NodeMissing { node: NODE }),
        (Node::Denied, _) => Some(Problem::NodeDenied { node: NODE }),
        (Node::Open, false) => Some(Problem::NodeWithoutLibrary { node: NODE }),
        (Node::Missing, false) | (Node::Open, true) | (Node::Unknown, _) => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::calls::Fault;
    use crate::device::select_tests::{IMAGES, NAMES};
    use crate::facts::{Facts, tests::h200};

    /// Answers in the driver's place.
    pub(crate) struct Fake {
        pub(crate) version: Result<i32, Fault>,
        pub(crate) init: Result<(), Fault>,
        pub(crate) devices: Vec<(Result<Facts, Fault>, Result<u64, Fault>)>,
    }

    impl Fake {
        pub(crate) fn with(devices: usize) -> Self {
            let device = (Ok(h200()), Ok(100 << 30));
            Self { version: Ok(13000), init: Ok(()), devices: vec![device; devices] }
        }
    }

    impl Calls for Fake {
        fn driver_version(&self) -> Result<i32, Fault> {
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

    /// A build without kernels.
    pub(crate) fn none() -> Built {
        Built::of(&[], &[], None)
    }

    pub(crate) fn quiet() -> Surroundings {
        Surroundings { hiding: Vec::new(), node: Node::Open }
    }

    fn lines(survey: &Survey) -> Vec<String> {
        survey.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn devices_are_listed_and_lack_of_kernels_is_said() {
        let survey = Survey::take(Ok(&Fake::with(2)), &quiet(), &none());
        assert_eq!(survey.version.as_deref(), Some("13.0"));
        assert_eq!(survey.devices.len(), 2);
        assert_eq!((survey.devices[1].index, survey.devices[1].memory_free), (1, 100 << 30));
        assert_eq!(survey.problems.len(), 2);
        assert!(matches!(survey.problems[1], Problem::NoKernels { index: 1, .. }));
        let built = Built::of(IMAGES, NAMES, None);
        assert_eq!(Survey::take(Ok(&Fake::with(2)), &quiet(), &built).problems, []);
        let forced = Built::of(IMAGES, NAMES, Some("89"));
        let survey = Survey::take(Ok(&Fake::with(1)), &quiet(), &forced);
        assert!(lines(&survey)[0].contains("FORETOKEN_FORCE_PTX=89"), "{survey:?}");
    }

    #[test]
    fn a_device_that_cannot_be_asked_is_left_out_and_the_rest_stay() {
        let mut fake = Fake::with(3);
        fake.devices[1].0 = Err(fault("cuDeviceGetAttribute", 101));
        fake.devices[2].1 = Err(fault("cuDevicePrimaryCtxRetain", 2));
        let survey = Survey::take(Ok(&fake), &quiet(), &none());
        let listed: Vec<_> = survey.devices.iter().map(|d| (d.index, d.memory_free)).collect();
        assert_eq!(listed, [(0, 100 << 30), (2, 0)]);
        let lines = lines(&survey).join("\n");
        assert!(lines.contains("cuda:1 is left out: cuDeviceGetAttribute failed: words of 101"));
        assert!(lines.contains("cuda:2: free memory is unknown: cuDevicePrimaryCtxRetain"));
    }

    #[test]
    fn a_driver_that_does_not_start_is_quoted() {
        let fake = Fake { init: Err(fault("cuInit", 803)), ..Fake::with(1) };
        let around = Surroundings { node: Node::Denied, ..quiet() };
        let survey = Survey::take(Ok(&fake), &around, &none());
        assert_eq!((survey.version.as_deref(), survey.devices.len()), (Some("13.0"), 0));
        let lines = lines(&survey);
        assert_eq!(lines[0], "cuInit failed: words of 803");
        assert!(lines[1].starts_with("/dev/nvidiactl may not be opened"), "{lines:?}");
    }

    #[test]
    fn no_device_is_one_problem_however_the_driver_says_it() {
        let bare = Fake { init: Err(fault("cuInit", NO_DEVICE)), ..Fake::with(0) };
        for fake in [bare, Fake::with(0)] {
            let around = Surroundings { node: Node::Missing, ..quiet() };
            let survey = Survey::take(Ok(&fake), &around, &none());
            let expected = [Problem::NoDevice, Problem::NodeMissing { node: NODE }];
            assert_eq!(survey.problems, expected);
        }
    }

    #[test]
    fn an_old_driver_and_a_silent_one_are_said() {
        let old = Fake { version: Ok(12040), ..Fake::with(1) };
        let survey = Survey::take(Ok(&old), &quiet(), &none());
        assert_eq!(survey.problems[0], Problem::DriverTooOld { found: 12040 });
        assert_eq!((survey.version.as_deref(), survey.devices.len()), (Some("12.4"), 1));
        let silent = Fake { version: Err(fault("cuDriverGetVersion", 1)), ..Fake::with(1) };
        let survey = Survey::take(Ok(&silent), &quiet(), &none());
        assert!(matches!(survey.problems[0], Problem::Call { .. }) && survey.version.is_none());
    }

    #[test]
    fn without_a_library_the_node_and_the_variables_tell_the_rest() {
        let missing = || Err(Problem::LibraryMissing { tried: vec!["libcuda.so.1".into()] });
        let hiding = vec![("CUDA_VISIBLE_DEVICES", "-1".to_owned())];
        let survey = Survey::take(missing(), &Surroundings { hiding, node: Node::Open }, &none());
        assert!(survey.devices.is_empty() && survey.version.is_none());
        assert!(matches!(survey.problems[1], Problem::NodeWithoutLibrary { .. }));
        assert_eq!(lines(&survey)[2], "CUDA_VISIBLE_DEVICES=-1 is set and may hide devices");
        // A machine with no NVIDIA anything: the first line says it all.
        let bare = Surroundings { node: Node::Missing, ..quiet() };
        assert_eq!(Survey::take(missing(), &bare, &none()).problems.len(), 1);
    }
}
