//! The admin port: what other programs may ask about this one, and the asking itself, for containers that have no curl.

pub(in crate::console) mod api;
pub mod client;
mod elsewhere;
mod exported;
pub mod files;
mod incoming;
mod listing;
mod login;
pub mod looks;
mod newcomers;
mod pace;
mod parameters;
mod problem;
pub mod room;
pub mod rooms;
pub mod server;
mod slow_down;
pub mod wanted;
mod web;

pub use api::Api;

/// Required on requests that change something: a foreign page cannot make a browser send it.
const OWN_HEADER: &str = "x-dlx-proxy-request";
