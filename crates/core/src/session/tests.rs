//! Scripted peers: the script is both legs, time is a number.

mod bounds;
mod bridges;
mod came_back;
mod crashes;
mod declares;
mod default_type;
mod doubt;
mod external;
mod frames;
mod generated;
mod inquiry;
mod instead;
mod kept;
mod late;
mod leaving;
mod led_back;
mod lenient;
mod lookup;
mod message;
mod names;
mod native;
mod order;
mod policies;
mod probes;
mod refusals;
mod rejects;
mod retries;
mod retries_declared;
mod retries_ways;
mod script;
mod transparency;
mod tx;
mod unacked;
mod unasked;
mod unpublished;
mod verify;
mod who;
mod without_copy;

use crate::machine::{Limits, LiveLimits};
use crate::objects::Names;

fn limits() -> LiveLimits {
    LiveLimits::new(Limits::of_tests())
}

fn names() -> Names {
    Names::new("dlx-proxy").expect("a good prefix")
}
