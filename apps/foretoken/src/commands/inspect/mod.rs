//! `inspect`: what is in a model file, and the memory it would take.

mod draft;
mod metadata;
mod source;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use foretoken::device::{Device, MemoryPlan};
use foretoken::format::TensorInfo;
use foretoken::generate::Planner;
use serde::Serialize;

use self::draft::DraftReport;
use self::metadata::MetadataReport;
use self::source::Source;
use super::plan::PlanReport;
use crate::args::InspectArgs;
use crate::drivers;
use crate::failure::{escaped, one_line};
use crate::load::{Demand, session_options};
use crate::output::{Align, Table, print_json, size, stdout, wrapped};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    file: String,
    format: &'static str,
    architecture: Option<&'a str>,
    metadata: MetadataReport<'a>,
    tensors: Vec<TensorReport<'a>>,
    types: Vec<TypeReport>,
    /// Settings of a draft model.
    draft: Option<DraftReport>,
    /// Absent when this build can not run the model; `plan_problem` then says why.
    plan: Option<PlanReport>,
    plan_problem: Option<String>,
}

/// One tensor; the shape's outermost dimension first.
#[derive(Debug, Serialize)]
struct TensorReport<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: usize,
}

impl<'a> TensorReport<'a> {
    fn new(info: &'a TensorInfo) -> Self {
        let shape = info.shape();
        let (dtype, shape) = (info.dtype().name(), shape.dims().to_vec());
        Self { name: info.name(), dtype, shape, bytes: info.bytes() }
    }
}

/// All tensors of one type.
#[derive(Debug, Serialize)]
struct TypeReport {
    #[serde(rename = "type")]
    dtype: &'static str,
    tensors: usize,
    elements: u64,
    bytes: u64,
}

fn by_type(tensors: &[TensorInfo]) -> Vec<TypeReport> {
    let mut types = BTreeMap::new();
    for info in tensors {
        let dtype = info.dtype().name();
        let empty = TypeReport { dtype, tensors: 0, elements: 0, bytes: 0 };
        let entry = types.entry(info.dtype()).or_insert(empty);
        entry.tensors += 1;
        entry.elements = entry.elements.saturating_add(info.shape().elements() as u64);
        entry.bytes = entry.bytes.saturating_add(info.bytes() as u64);
    }
    types.into_values().collect()
}

/// Runs the command.
pub(super) fn run(args: &InspectArgs) -> Result<()> {
    let asked = args.file.as_deref().or(args.model.model.as_deref());
    let source = Source::open(asked, &args.model.open_options())?;
    let device = drivers::open(&args.device.device, args.device.driver_options())?;
    let draft = source.draft();
    let planned = match &draft {
        Some(Ok(_)) => Err(anyhow!("a dflash draft; what it takes depends on its target")),
        _ => planned(args, &source, device),
    };
    if let Err(error) = &planned
        && let Some(foretoken::Error::Generate(_)) = error.downcast_ref()
    {
        // The flags are at fault, not the model.
        return planned.map(drop);
    }
    // A draft with a fault is no model either: its own fault says more.
    let (draft, problem) = match draft {
        Some(Ok(config)) => (Some(DraftReport::new(&config)), None),
        Some(Err(error)) => (None, Some(one_line(&error.into()))),
        None => (None, None),
    };
    let tensors = source.tensors().tensors();
    let report = Report {
        file: source.path().display().to_string(),
        format: source.format(),
        architecture: source.architecture(),
        metadata: source.metadata(),
        tensors: tensors.iter().map(TensorReport::new).collect(),
        types: by_type(tensors),
        draft,
        plan: planned.as_ref().ok().map(PlanReport::from),
        plan_problem: problem.or_else(|| planned.as_ref().err().map(one_line)),
    };
    if args.json {
        return print_json(&report);
    }
    print_text(&report, planned.ok().as_ref())
}

/// The memory that the model and a session of the given flags would take.
fn planned(args: &InspectArgs, source: &Source, device: Arc<dyn Device>) -> Result<MemoryPlan> {
    let file = source.model(&args.model.open_options())?;
    let demand = Demand { tokens: 0, all_logits: false };
    let planner = Planner::new(file, device, args.session.activations.into())?;
    let options = session_options(&planner, &args.session, demand)?;
    Ok(planner.plan(&options)?)
}

fn print_text(report: &Report<'_>, planned: Option<&MemoryPlan>) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{}", escaped(&report.file))?;
    let architecture = escaped(report.architecture.unwrap_or("unknown"));
    writeln!(out, "{}, architecture {architecture}\n", report.format)?;
    report.metadata.write(&mut out)?;
    writeln!(out)?;
    let columns = [
        ("tensor", Align::Left),
        ("type", Align::Left),
        ("shape", Align::Right),
        ("size", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for t in &report.tensors {
        let dims: Vec<_> = t.shape.iter().map(usize::to_string).collect();
        table.row([escaped(t.name), t.dtype.to_owned(), dims.join("x"), size(t.bytes as u64)]);
    }
    table.write(&mut out)?;
    writeln!(out)?;
    let columns = [
        ("type", Align::Left),
        ("tensors", Align::Right),
        ("elements", Align::Right),
        ("size", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for t in &report.types {
        let (tensors, elements) = (t.tensors.to_string(), t.elements.to_string());
        table.row([t.dtype.to_owned(), tensors, elements, size(t.bytes)]);
    }
    table.write(&mut out)?;
    if let Some(draft) = &report.draft {
        writeln!(out)?;
        draft.write(&mut out)?;
    }
    match planned {
        Some(plan) => writeln!(out, "\n{plan}")?,
        None => {
            let why = report.plan_problem.as_deref().unwrap_or_default();
            writeln!(out, "\n{}", wrapped(&format!("no memory plan: {why}"), 2))?;
        }
    }
    Ok(out.flush()?)
}
