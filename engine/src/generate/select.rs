//! Choosing a device among the drivers of a build.

use std::sync::Arc;

use crate::device::{Device, DeviceFault, DeviceSpec, Driver};
use crate::error::Result;

/// Opens the device that `spec` names, or the one with the highest score.
///
/// # Errors
/// `NoSuchDevice` listing what there is and why a driver has nothing.
pub fn select_device(drivers: &[Arc<dyn Driver>], spec: &DeviceSpec) -> Result<Arc<dyn Device>> {
    let mut available = Vec::new();
    let mut best: Option<(u64, &Arc<dyn Driver>, usize)> = None;
    for driver in drivers {
        for info in driver.devices()? {
            if let DeviceSpec::Named { driver: name, index } = spec
                && driver.name() == name
                && info.index == *index
            {
                return driver.open(*index);
            }
            let score = driver.score(&info);
            if score > 0 && best.is_none_or(|(s, ..)| score > s) {
                best = Some((score, driver, info.index));
            }
            available.push(format!("{}:{}", driver.name(), info.index));
        }
    }
    if let (DeviceSpec::Auto, Some((_, driver, index))) = (spec, best) {
        return driver.open(index);
    }
    let mut available = available.join(", ");
    if let DeviceSpec::Named { driver: name, .. } = spec
        && let Some(driver) = drivers.iter().find(|d| d.name() == name)
        && let Some(problem) = driver.problems().first()
    {
        available = format!("{available} ({name}: {problem})");
    }
    Err(DeviceFault::NoSuchDevice { asked: spec.to_string(), available }.into())
}
