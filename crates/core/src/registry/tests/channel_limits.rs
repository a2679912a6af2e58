//! Users that met a limit on channels.

use crate::amqp::ids::name;
use crate::machine::Mono;
use crate::registry::channel_limits::{ChannelLimits, LIMITED_FOR};

#[test]
fn a_limit_is_of_one_user_for_a_day() {
    let limits = ChannelLimits::default();
    limits.clone().learn(&name("bob"), Mono(0));
    assert!(limits.has(&name("bob"), Mono(0)));
    assert!(!limits.has(&name("bob"), Mono(0).after(LIMITED_FOR)));
    assert!(!limits.has(&name("eve"), Mono(0)));
}
