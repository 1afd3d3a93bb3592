//! Runs the command that was selected on the command line.

use anyhow::Result;

use super::{
    bounds,
    history::{self, HistoryPlan},
    live::LivePlan,
    report,
    weeks::WeeksPlan,
};

/// A command with its parameters.
pub(crate) enum Plan {
    Live { plan: LivePlan, is_json: bool },
    History { plan: HistoryPlan, is_json: bool, with_queries: bool },
    Weeks { plan: WeeksPlan, is_json: bool },
    Check,
}

impl Plan {
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Live { plan, is_json } => {
                let live = plan.run().await?;
                report::print(&live, is_json)
            }
            Self::History { plan, is_json, with_queries } => {
                let prometheus = history::server().await?;
                let interval = plan.interval.as_secs_f64();
                let mut history = plan.run(&prometheus).await?;
                if with_queries {
                    history.time_queries(&prometheus, interval).await?;
                }
                report::print(&history, is_json)
            }
            Self::Weeks { plan, is_json } => report::print(&plan.run()?, is_json),
            Self::Check => bounds::check().await,
        }
    }
}
