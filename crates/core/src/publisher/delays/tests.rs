//! When a delay queue is made.

use super::*;

#[test]
fn a_queue_is_made_once_in_each_life_of_a_link() {
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    let key = key(Duration::from_millis(50));
    let made = |delays: &mut Delays| {
        let mut out = Vec::new();
        delays.build(&key, Dialect::V4, &mut out, ChannelId(1));
        !out.is_empty()
    };
    assert!(made(&mut delays));
    assert!(!made(&mut delays));
    delays.forget(&key);
    assert!(made(&mut delays));
    delays.doubt();
    assert!(made(&mut delays));
}
