//! The shell around the pure machines: sockets, tasks and channels, and nothing that decides.

pub mod drive;
pub mod links;
pub mod listener;
pub mod permits;
pub mod vhosts;
