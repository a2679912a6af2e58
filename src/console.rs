//! What operators use: the API with its pages, and the command line. The proxy below works without any of it; only `app` and `main` use it.
//!
//! - [`admin`]: the admin port: health, readiness, metrics, the API, pages for browsers
//! - [`redrives`]: dead letters that are sent back, or removed
//! - [`cli`]: the command line
//! - [`dead_letters`]: the commands that ask the API of a running proxy
//! - [`doctor`]: what is to be done before it goes live · [`retries`]: what waits for a retry · [`demo`]: what RabbitMQ alone would lose, through a proxy
//! - [`connection`]: lapin, for the commands that need no proxy

pub mod admin;
pub mod cli;
mod columns;
pub mod connection;
mod count;
pub mod dead_letters;
pub mod demo;
pub mod doctor;
pub mod redrives;
pub mod retries;
