//! The shell around the pure machines: sockets, tasks and channels, and nothing that decides.

pub mod alterations;
pub mod background;
pub mod balance;
pub mod clock;
pub mod dial;
pub mod drive;
pub mod handshakes;
pub mod links;
pub mod listener;
pub mod nodes;
pub mod outlet;
pub mod permits;
pub mod ports;
pub mod proxy_protocol;
pub mod question;
pub mod stream;
pub mod unix;
pub mod vhosts;
pub mod walks;
pub mod watched;
pub mod workers;
