//! Two proxies that have read the same count alike. The stream decides which of two declares came first.

use std::collections::VecDeque;

use super::*;

const OWNER: Owner = Owner(7);

impl Scripted {
    fn published(&mut self) -> Vec<Message> {
        let sent = self.rig.sent();
        let headers = sent.iter().filter(|sent| sent.kind == Kind::Header);
        let read = |sent: &Sent| Message::read(&sent.payload[12..], b"proxy");
        headers.filter_map(read).collect()
    }
}

/// All read the stream, and what they write stands behind it. Who is answered, and what the entry said that had just come.
fn to_both(
    scripts: &mut [Scripted; 2],
    stream: impl IntoIterator<Item = Message>,
) -> Vec<(usize, Option<DeclaredTarget>)> {
    let mut stream = VecDeque::from_iter(stream);
    let mut answered = Vec::new();
    let mut read = 0;
    while let Some(message) = stream.pop_front() {
        read += 1;
        assert!(read < 20, "it has no end");
        let Message::Entry(_, entry) = &message else {
            panic!("no entry: {message:?}");
        };
        for (n, script) in scripts.iter_mut().enumerate() {
            script.comes(&message, b"proxy");
            if !std::mem::take(&mut script.rig.fx.out.recorded).is_empty() {
                answered.push((n, entry.said.clone()));
            }
            stream.extend(script.published());
        }
    }
    answered
}

#[test]
fn of_two_declares_at_once_both_are_recorded_and_one_counts_for_all() {
    let new = || Scripted::begin(&mut Words::default());
    for old in [None, Some(Message::Entry(name("q"), entry(5, "z")))] {
        for first in [0, 1] {
            let mut scripts = [new(), new()];
            let mut written = [0, 1].map(|n| {
                let entry = scripts[n].count(&name("q"), ["a", "b"][n]);
                let record = Input::Record(name("q"), entry, Some(OWNER));
                scripts[n].rig.input(record);
                scripts[n].published()
            });
            written.rotate_left(first);
            let stream = old.clone().into_iter().chain(written.concat());
            let mut answered = to_both(&mut scripts, stream);
            let last = answered.last().and_then(|(_, said)| said.clone());
            let said = scripts.each_ref().map(|script| script.target("q"));
            assert_eq!(said, [last.clone(), last], "the last one, for both");
            answered.sort();
            assert_eq!(answered, [(0, Some(to("a"))), (1, Some(to("b")))]);
        }
    }
}
