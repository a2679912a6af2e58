//! The shell around the pure machines: sockets, tasks and channels, and nothing that decides.

pub mod clock;
pub mod drive;
pub mod links;
pub mod listener;
pub mod outlet;
pub mod permits;
pub mod stream;
pub mod vhosts;
pub mod walks;
pub mod workers;
