//! What an operator sees: log lines and metrics. The core returns facts and plain numbers; here they get words, levels and names.

mod alarms;
mod dead_letter_queues;
pub mod events;
mod hook;
pub mod logging;
pub mod metrics;
mod names;
mod overdue;
mod own_queues;
mod remembered;
mod repeats;
mod upstream;

pub use alarms::Alarm;
pub use events::Reporter;
pub use metrics::Metrics;
