//! Scripted peers: the script is both legs, time is a number.

mod bridges;
mod changes;
mod declares;
mod doubt;
mod late;
mod leaving;
mod order;
mod policies;
mod refusals;
mod rejects;
mod script;
mod transparency;
mod unacked;
mod verify;

use crate::machine::{Limits, LiveLimits};
use crate::registry::intake_name::Names;

fn limits() -> LiveLimits {
    LiveLimits::new(Limits {
        retained_per_connection: 1 << 20,
        max_tickets: 4,
        ..Limits::of_tests()
    })
}

fn names() -> Names {
    Names::new("dlx-proxy").expect("a good prefix")
}
