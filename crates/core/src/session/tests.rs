//! Scripted peers: the script is both legs, time is a number.

mod ack_timeout;
mod bounds;
mod bridges;
mod came_back;
mod crashes;
mod external;
mod frames;
mod instead;
mod kept;
mod led_back;
mod message;
mod policies;
mod retries_ways;
mod script;
mod transcripts;
mod transparency;
mod unacked;
mod who;
mod words;

use crate::machine::{Limits, LiveLimits};
use crate::objects::Names;

fn limits() -> LiveLimits {
    LiveLimits::new(Limits::of_tests())
}

fn names() -> Names {
    Names::new("dlx-proxy").expect("a good prefix")
}
