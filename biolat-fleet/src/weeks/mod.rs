//! Evaluates whole weeks of the model without Prometheus, by reimplementing the rules of BlockDeviceFailSlow for drives and
//! nodes. A week of a thousand drives takes a minute, fast enough to compare many weeks.

pub(crate) mod judge;
pub(crate) mod medians;
pub(crate) mod past;
pub(crate) mod thresholds;
pub(crate) mod week;
pub(crate) mod windows;

use std::fmt::{self, Display};

use anyhow::Result;
use serde::Serialize;

use super::{
    detection::Score,
    table::{Table, number},
};
use thresholds::Thresholds;
use week::Week;

pub(crate) use week::WeeksPlan;

/// Findings in each week.
#[derive(Serialize)]
pub(crate) struct Weeks {
    pub(crate) drives: usize,
    pub(crate) days: f64,
    pub(crate) weeks: Vec<Scored>,
}

#[derive(Serialize)]
pub(crate) struct Scored {
    pub(crate) seed: u64,
    pub(crate) score: Score,
}

impl WeeksPlan {
    pub(crate) fn run(&self) -> Result<Weeks> {
        let thresholds = Thresholds::deployed()?;
        let score = |&seed: &u64| {
            let week = Week::draw(self, seed)?;
            Ok(Scored { seed, score: week.score(&thresholds) })
        };
        Ok(Weeks {
            drives: self.nodes * self.drives,
            days: self.length.as_secs_f64() / 86_400.0,
            weeks: self.seeds.iter().map(score).collect::<Result<_>>()?,
        })
    }
}

impl Weeks {
    fn sum(&self, figure: impl Fn(&Score) -> usize) -> usize {
        self.weeks.iter().map(|week| figure(&week.score)).sum()
    }

    /// Returns the share of all faults that were found.
    pub(crate) fn recall(&self) -> f64 {
        self.sum(Score::found_count) as f64 / self.sum(Score::fault_count) as f64
    }

    pub(crate) fn false_alarms_per_thousand_drives_and_week(&self) -> f64 {
        let drive_weeks = (self.weeks.len() * self.drives) as f64 * self.days / 7.0;
        self.sum(|score| score.false_alarms) as f64 * 1000.0 / drive_weeks
    }
}

impl Display for Weeks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} drives, {:.1} days per seed, without Prometheus\n", self.drives, self.days)?;
        let mut table = Table::new(["seed", "faults", "found", "recall", "false alarms", "during"]);
        for Scored { seed, score } in &self.weeks {
            let during = score.false_alarms_by_kind.iter().map(|(kind, count)| format!("{kind} {count}"));
            table.row([
                seed.to_string(),
                score.fault_count().to_string(),
                score.found_count().to_string(),
                number(score.recall(), 2),
                score.false_alarms.to_string(),
                during.collect::<Vec<_>>().join(", "),
            ]);
        }
        table.row([
            "all".to_owned(),
            self.sum(Score::fault_count).to_string(),
            self.sum(Score::found_count).to_string(),
            number(Some(self.recall()), 3),
            self.sum(|score| score.false_alarms).to_string(),
            String::new(),
        ]);
        writeln!(f, "{table}")?;
        let false_alarms = self.false_alarms_per_thousand_drives_and_week();
        writeln!(f, "{} false alarms per 1,000 drives and week", number(Some(false_alarms), 2))
    }
}
