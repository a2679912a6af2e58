//! What an operator sees: log lines and metrics. The core returns facts and plain numbers; here they get words, levels and names.

pub mod events;
pub mod logging;
pub mod metrics;
mod names;
mod overdue;
mod repeats;

pub use events::Reporter;
pub use metrics::Metrics;
