//! Scripted peers: the script is both legs, time is a number.

mod rejects;
mod script;
mod transparency;

use crate::registry::intake_name::Names;

fn names() -> Names {
    Names::default()
}
