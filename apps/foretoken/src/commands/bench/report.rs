//! Results of `bench` as Markdown, JSON or CSV.

use std::io::Write;

use anyhow::Result;
use foretoken::device::DeviceInfo;
use foretoken::generate::SessionOptions;
use foretoken::speculate::{CostPoints, VerifyPoint};
use serde::Serialize;

use crate::args::Format;
use crate::output::{Align, Table, stdout, wrapped, write_json};

/// One test's result, in tokens per second or milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    test: String,
    model: String,
    device: String,
    driver: &'static str,
    median: f64,
    spread: Spread,
    /// Repetitions.
    n: usize,
    unit: &'static str,
    samples: Vec<f64>,
    /// Seconds to open the file and take in the weights.
    load_s: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    speculated: Option<Speculated>,
    conditions: Conditions,
}

/// What speculation did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Speculated {
    /// Tokens of a speculative step; `None` when there was none.
    pub(super) acceptance_length_mean: Option<f64>,
    /// The rate over that of plain decoding.
    pub(super) times_plain: f64,
    /// What proposed.
    pub(super) drafter: String,
    /// Limits of chains and trees.
    pub(super) draft_len: usize,
    pub(super) tree_budget: usize,
}

/// How far the repetitions lie apart.
#[derive(Debug, Serialize)]
struct Spread {
    min: f64,
    max: f64,
    stddev: f64,
}

/// What the result depends on besides model and device.
#[derive(Debug, Serialize)]
pub(super) struct Conditions {
    threads: u32,
    context: usize,
    depth: usize,
    kv_type: &'static str,
    activations: &'static str,
    chunk: usize,
    build: String,
    cpu: String,
    arch: String,
    features: Vec<String>,
}

impl Conditions {
    /// Those of a session on a device.
    pub(super) fn new(
        info: &DeviceInfo,
        options: SessionOptions,
        depth: usize,
        activations: &'static str,
    ) -> Self {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Self {
            threads: info.units,
            context: options.context,
            depth,
            kv_type: options.kv_type.name(),
            activations,
            chunk: options.chunk,
            build: format!("{} {profile}", env!("CARGO_PKG_VERSION")),
            cpu: info.name.clone(),
            arch: info.arch.clone(),
            features: info.features.clone(),
        }
    }
}

impl Row {
    /// A result from the samples of all repetitions.
    pub(super) fn new(
        test: String,
        model: String,
        info: &DeviceInfo,
        samples: &[f64],
        unit: &'static str,
        conditions: Conditions,
    ) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let ends = (sorted.first().copied(), sorted.last().copied());
        Self {
            test,
            model,
            device: format!("{}:{}", info.driver, info.index),
            driver: info.driver,
            median: median(&sorted),
            spread: Spread {
                min: ends.0.unwrap_or(f64::NAN),
                max: ends.1.unwrap_or(f64::NAN),
                stddev: stddev(&sorted),
            },
            n: samples.len(),
            unit,
            samples: samples.to_vec(),
            load_s: f64::NAN,
            speculated: None,
            conditions,
        }
    }

    /// The same with how long the model took to load.
    pub(super) fn loaded(self, load_s: f64) -> Self {
        Self { load_s, ..self }
    }

    /// The same with what speculation did.
    pub(super) fn speculated(self, speculated: Speculated) -> Self {
        Self { speculated: Some(speculated), ..self }
    }
}

/// Median of rates in any order.
pub(super) fn median_of(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    median(&sorted)
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(at(middle.saturating_sub(1)), at(middle))
    } else {
        at(middle)
    }
}

/// Sample standard deviation; 0 for a single value.
fn stddev(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (n - 1.0).max(1.0)).sqrt()
}

/// Rows on their way out: JSON and CSV at once, Markdown when all are known.
pub(super) struct Results {
    format: Format,
    table: Table,
    notes: Vec<String>,
    header_due: bool,
}

impl Results {
    /// No rows yet.
    pub(super) fn new(format: Format, speculation: bool) -> Self {
        let mut columns = vec![
            ("model", Align::Left),
            ("device", Align::Left),
            ("threads", Align::Right),
            ("test", Align::Left),
            ("tok/s", Align::Right),
        ];
        match speculation {
            true => columns.extend([("x plain", Align::Right), ("al", Align::Right)]),
            false => columns.push(("min..max", Align::Right)),
        }
        let table = Table::new(&columns);
        Self { format, table, notes: Vec::new(), header_due: true }
    }

    /// Takes a row.
    ///
    /// # Errors
    /// When stdout can not be written.
    pub(super) fn add(&mut self, row: Row) -> Result<()> {
        let mut out = stdout();
        match self.format {
            Format::Json => write_json(&mut out, &row)?,
            Format::Csv => {
                if std::mem::take(&mut self.header_due) {
                    writeln!(out, "{CSV_HEADER}")?;
                }
                writeln!(out, "{}", csv(&row))?;
            }
            Format::Md => {
                let Spread { min, max, stddev } = row.spread;
                let (rate, range) = match row.unit {
                    "ms" => (
                        format!("{:.2} ± {stddev:.2} ms", row.median),
                        format!("{min:.2}..{max:.2}"),
                    ),
                    _ => {
                        (format!("{:.1} ± {stddev:.1}", row.median), format!("{min:.1}..{max:.1}"))
                    }
                };
                let threads = row.conditions.threads.to_string();
                // A bar would begin another column.
                let model = row.model.replace('|', "\\|");
                let first = [model, row.device, threads, row.test, rate];
                let rest = match row.speculated {
                    None => vec![range],
                    Some(s) => {
                        let mean = s.acceptance_length_mean;
                        let mean = mean.map_or("-".to_owned(), |mean| format!("{mean:.2}"));
                        vec![format!("{:.2}", s.times_plain), mean]
                    }
                };
                self.table.row(first.into_iter().chain(rest));
            }
        }
        Ok(out.flush()?)
    }

    /// Notes the times of steps that decisions were made by: after the Markdown table, or
    /// as a JSON object of its own.
    ///
    /// # Errors
    /// When stdout can not be written.
    pub(super) fn cost(&mut self, of: &str, cost: &CostPoints) -> Result<()> {
        if self.format == Format::Json {
            return write_json(&mut stdout(), &serde_json::json!({ "step_times": cost, "of": of }));
        }
        let mut verify: Vec<_> = cost.verify.iter().collect();
        verify.sort_by_key(|point| point.rows);
        let base = cost.plain_s;
        let point = |p: &&VerifyPoint| format!("{}: {:.2}", p.rows, p.seconds / base);
        let curve: Vec<_> = verify.iter().map(point).collect();
        self.notes.push(format!(
            "{of}: plain step {:.3} ms, draft {:.2}x, commit {:.2}x, verification of M rows: {}",
            base * 1e3,
            cost.draft_s / base,
            cost.commit_s / base,
            curve.join(", "),
        ));
        Ok(())
    }

    /// Writes what is still to be written.
    ///
    /// # Errors
    /// When stdout can not be written.
    pub(super) fn finish(self) -> Result<()> {
        let mut out = stdout();
        if self.format == Format::Md && !self.table.is_empty() {
            self.table.write_markdown(&mut out)?;
            for note in &self.notes {
                writeln!(out, "\n{}", wrapped(note, 0))?;
            }
        }
        Ok(out.flush()?)
    }
}

const CSV_HEADER: &str = "test,model,device,driver,median,min,max,stddev,n,threads,context,depth,\
                          kv_type,activations,chunk,build,cpu,acceptance_length_mean,times_plain,\
                          drafter,draft_len,tree_budget,unit,load_s";

fn csv(row: &Row) -> String {
    let c = &row.conditions;
    let fields = [
        row.test.clone(),
        row.model.clone(),
        row.device.clone(),
        row.driver.to_owned(),
        format!("{:.3}", row.median),
        format!("{:.3}", row.spread.min),
        format!("{:.3}", row.spread.max),
        format!("{:.3}", row.spread.stddev),
        row.n.to_string(),
        c.threads.to_string(),
        c.context.to_string(),
        c.depth.to_string(),
        c.kv_type.to_owned(),
        c.activations.to_owned(),
        c.chunk.to_string(),
        c.build.clone(),
        c.cpu.clone(),
    ];
    let speculated = row.speculated.as_ref().map_or([const { String::new() }; 5], |s| {
        [
            s.acceptance_length_mean.map_or(String::new(), |mean| format!("{mean:.4}")),
            format!("{:.4}", s.times_plain),
            s.drafter.clone(),
            s.draft_len.to_string(),
            s.tree_budget.to_string(),
        ]
    });
    let last = [row.unit.to_owned(), format!("{:.3}", row.load_s)];
    fields.iter().chain(&speculated).chain(&last).map(|f| quote(f)).collect::<Vec<_>>().join(",")
}

/// Quotes a field that needs it (RFC 4180).
fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_small_samples() {
        assert_eq!(median(&[1.0, 2.0, 10.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 10.0]), 3.0);
        assert_eq!(stddev(&[5.0]), 0.0);
        assert!((stddev(&[1.0, 2.0, 3.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn csv_fields_are_quoted_when_needed() {
        assert_eq!(quote("a b"), "a b");
        assert_eq!(quote("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
