//! What can be tested without a broker, from outside the crate:
//!
//! - `config`: the settings, their layers, and every mistake in them
//! - `cli`: the command line and its exit codes
//! - `documents`: their links, their commands, the tables in them that are made from the code
//! - `metrics`: every metric is counted, with the labels that it says
//! - `reload`: SIGHUP: what changes in a running proxy, and what is said about it
//! - `service`: what a service manager is told and hands over, and the limit on file descriptors
//! - `walls`: the pure core imports nothing impure, and no file grows too long
//!
//! `proxy` is a running one with its log; of `tests/support`: `running`.

mod cli;
mod config;
mod documents;
mod metrics;
mod proxy;
mod reload;
#[path = "../support/running.rs"]
mod running;
mod service;
mod walls;

use std::path::{Path, PathBuf};

/// A file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The text of a file of the repository.
fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository(path)).expect(path)
}

/// Compares a file that is made from code; with UPDATE=1 it is written instead, and a human reads the diff.
fn assert_made_from_code(path: &str, made: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(repository(path), made).expect(path);
    }
    assert!(
        text_of(path) == made,
        "{path} is not what the code says: `UPDATE=1 cargo test --test offline` writes it; read the diff"
    );
}
