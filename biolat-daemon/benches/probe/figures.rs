//! The measurements, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::{
    programs::{Cost, Program},
    statistics::{Interval, Spread},
};

/// The measurements of one subject, by round.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) name: String,
    /// Measured with the kernel's BPF statistics off.
    pub(crate) iops: Vec<f64>,
    /// Measured with the kernel's BPF statistics on. Empty for a subject without programs.
    pub(crate) cost: Vec<Cost>,
    pub(crate) programs: Vec<Program>,
}

pub(crate) const NOTHING: &str = "nothing";
pub(crate) const EMPTY: &str = "empty";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const BIOLAT: &str = "biolat";

/// A summary of the measurements.
pub(crate) struct Table<'a>(Vec<Row<'a>>);

pub(crate) struct Row<'a> {
    pub(crate) figures: &'a Figures,
    pub(crate) ns: Option<Spread>,
    /// Nanoseconds per I/O, minus the cost of an empty program for each run.
    pub(crate) net: Option<Spread>,
    pub(crate) of_floor: Option<Spread>,
    pub(crate) of_biolat: Option<Spread>,
    iops: Option<Spread>,
    /// Difference from the IOPS without a probe, in per cent.
    change: Option<Interval>,
}

impl<'a> Table<'a> {
    pub(crate) fn of(all: &'a [Figures]) -> Self {
        let named = |name: &str| all.iter().find(|figures| figures.name == name);
        let net = |figures: &Figures| named(EMPTY).map(|empty| net(figures, empty)).unwrap_or_default();
        let [floor, biolat] = [FLOOR, BIOLAT].map(|name| named(name).map(net).unwrap_or_default());
        let row = |figures: &'a Figures| {
            let ns: Vec<_> = figures.cost.iter().map(|cost| cost.ns).collect();
            let net = net(figures);
            let without = named(NOTHING).filter(|nothing| nothing.name != figures.name);
            let change =
                without.map(|nothing| by_round(&figures.iops, &nothing.iops, |a, b| (a / b - 1.0) * 100.0));
            Row {
                figures,
                ns: Spread::of(&ns),
                of_floor: Spread::of(&by_round(&net, &floor, |a, b| a / b)),
                of_biolat: Spread::of(&by_round(&net, &biolat, |a, b| a / b)),
                net: Spread::of(&net),
                iops: Spread::of(&figures.iops),
                change: change.and_then(|change| Interval::of(&change)),
            }
        };
        Self(all.iter().map(row).collect())
    }

    pub(crate) fn row(&self, name: &str) -> Option<&Row<'a>> {
        self.0.iter().find(|row| row.figures.name == name)
    }

    pub(crate) fn to_json(&self) -> Value {
        self.0.iter().map(Row::to_json).collect()
    }
}

/// Compares round by round, so that changes in the machine's state affect both sides.
fn by_round(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn net(figures: &Figures, empty: &Figures) -> Vec<f64> {
    let rounds = figures.cost.iter().zip(&empty.cost);
    rounds.map(|(cost, empty)| cost.ns - cost.runs * empty.ns).collect()
}

impl Row<'_> {
    fn to_json(&self) -> Value {
        json!({
            "subject": self.figures.name,
            "ns_per_io": self.ns.map(Spread::to_json),
            "net_ns_per_io": self.net.map(Spread::to_json),
            "ratio_to_floor": self.of_floor.map(Spread::to_json),
            "ratio_to_biolat": self.of_biolat.map(Spread::to_json),
            "iops": self.iops.map(Spread::to_json),
            "iops_change_percent": self.change.map(Interval::to_json),
            "programs": self.figures.programs.iter().map(Program::to_json).collect::<Value>(),
        })
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|row| row.figures.name.len()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>17}  {:>17}  {:>19}  {:>19}  {:>8}  {:>15}",
            "", "ns per I/O", "net of empty", "x floor", "x biolat", "IOPS", "change"
        )?;
        let show =
            |spread: Option<Spread>, digits| spread.map(|spread| spread.show(digits)).unwrap_or_default();
        for row in &self.0 {
            let change = row.change.map(|change| format!("{:+.2} ± {:.2} %", change.mean, change.margin));
            writeln!(
                f,
                "{:width$}  {:>17}  {:>17}  {:>19}  {:>19}  {:>8.0}  {:>15}",
                row.figures.name,
                show(row.ns, 0),
                show(row.net, 0),
                show(row.of_floor, 2),
                show(row.of_biolat, 2),
                row.iops.map(|iops| iops.median).unwrap_or_default(),
                change.unwrap_or_default(),
            )?;
        }
        writeln!(
            f,
            "\n{:width$}  {:>21}  {:>12}  {:>11}  {:>21}",
            "", "program", "xlated bytes", "jited bytes", "verified instructions"
        )?;
        for row in &self.0 {
            for program in &row.figures.programs {
                let [translated, jited, verified] = program.sizes();
                writeln!(
                    f,
                    "{:width$}  {:>21}  {translated:>12}  {jited:>11}  {verified:>21}",
                    row.figures.name, program.name
                )?;
            }
        }
        Ok(())
    }
}
