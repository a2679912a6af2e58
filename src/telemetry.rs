//! What an operator sees: log lines and metrics. The core returns facts and plain numbers; here they get words, levels and names.

#[macro_use]
pub mod facts;

mod alarms;
pub mod events;
pub mod logging;
pub mod metrics;
mod own_queues;
mod remembered;
mod repeats;
mod series;
mod upstream;

pub use alarms::Alarm;
pub use events::Reporter;
pub use metrics::Metrics;
