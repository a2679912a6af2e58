//! Shows what is said, for whoever looks into a failure.

use std::sync::LazyLock;

use dlx_proxy::amqp::frame::{self, Front};

/// With `TRACE=1` in the environment.
pub(crate) fn trace(what: &str, bytes: &[u8]) {
    static WANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TRACE").is_some());
    if !*WANTED || bytes.is_empty() {
        return;
    }
    let mut rest = bytes;
    while let Front::Whole(head, payload, length) = frame::front(rest) {
        eprintln!(
            "{what:12} {:5} {:?} {}",
            head.channel,
            head.kind,
            payload.escape_ascii()
        );
        rest = &rest[length..];
    }
    if !rest.is_empty() {
        eprintln!("{what:12}       ... {}", rest.escape_ascii());
    }
}
