//! The targets: each takes any bytes, and panics when a promise is broken.

mod driver;
mod edits;
mod frames;
mod input;
mod methods;
mod names;
mod properties;
mod reference;
mod stream;
mod tables;
mod trace;
mod words;

/// A name and what runs it.
type Target = (&'static str, fn(&[u8]));

/// All of them; each has a file in `fuzz/targets`, too.
pub(crate) const ALL: &[Target] = &[
    ("frames", frames::target),
    ("methods", methods::target),
    ("properties", properties::target),
    ("tables", tables::target),
    ("edits", edits::target),
    ("stream", stream::target),
    ("names", names::target),
    ("words", words::target),
];

/// Runs one target on one input.
pub(crate) fn run(name: &str, data: &[u8]) {
    let known = ALL.iter().find(|(known, _)| *known == name);
    let (_, target) = known.expect("a target of that name");
    target(data);
}
