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

use crate::registry::intake_name::Names;

fn names() -> Names {
    Names::new("dlx-proxy").expect("a good prefix")
}
