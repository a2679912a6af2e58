//! Paths and queries. Names need not be UTF-8, so that all of them are escaped octet by octet.

use std::ffi::OsStr;

use crate::cli::{self, Filters};
use crate::http;

/// The query of a request.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<String>);

/// The page of a queue with that name.
pub(super) fn of_queue(queue: &cli::Queue, page: &str) -> String {
    let (vhost, queue) = (escaped(&queue.vhost), escaped(&queue.queue));
    format!("/api/v1/vhosts/{vhost}/queues/{queue}/{page}")
}

/// The redrives of a vhost.
pub(super) fn redrives(vhost: &OsStr) -> String {
    format!("/api/v1/vhosts/{}/redrives", escaped(vhost))
}

/// The queues of a vhost that are handled.
pub(super) fn handled(vhost: &OsStr) -> String {
    format!("/api/v1/vhosts/{}/queues", escaped(vhost))
}

/// The dead-letter queues of a vhost.
pub(super) fn dead_letter_queues(vhost: &OsStr) -> String {
    format!("/api/v1/vhosts/{}/dead-letter-queues", escaped(vhost))
}

/// The queues of a vhost with another target than their arguments say.
pub(super) fn redeclared(vhost: &OsStr) -> String {
    format!("/api/v1/vhosts/{}/redeclared", escaped(vhost))
}

fn escaped(name: &OsStr) -> String {
    http::escaped(name.as_encoded_bytes())
}

// === impl Query ===

impl Query {
    pub(super) fn add(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.0.push(format!("{name}={}", escaped(value.as_ref())));
    }

    pub(super) fn text<Text: AsRef<OsStr>>(&mut self, name: &str, value: &Option<Text>) {
        value.iter().for_each(|value| self.add(name, value));
    }

    pub(super) fn number(&mut self, name: &str, value: Option<u64>) {
        self.text(name, &value.map(|value| value.to_string()));
    }

    pub(super) fn filters(&mut self, filters: &Filters) {
        let Filters {
            source,
            reason,
            error,
            routing_key,
            headers,
            body,
            older_than,
        } = filters;
        self.text("source", source);
        self.text("reason", reason);
        self.text("error", error);
        self.text("routing-key", routing_key);
        self.text("body", body);
        self.text("older-than", older_than);
        headers.iter().for_each(|pair| self.add("header", pair));
    }

    /// With its `?`; empty if nothing is asked for.
    pub(super) fn finish(self) -> String {
        match self.0.is_empty() {
            true => String::new(),
            false => format!("?{}", self.0.join("&")),
        }
    }
}
