//! What a declare asks for that loses messages though nothing refuses it. The broker's rules are S11.7 and S1.5.

use crate::amqp::table::Table;
use crate::objects::QueueType;

use super::arguments::MESSAGE_TTL;

const EXPIRES: &[u8] = b"x-expires";

const GOES_WITH_MESSAGES: &str = "x-expires deletes this quorum queue together with the messages that wait in it for the end of their TTL, and no dead-letter exchange gets those: \
     only a consumer keeps a quorum queue, to declare it again does not; leave x-expires out";

/// The argument that deletes a queue while messages wait in it: a queue for TTL delays has no
/// consumers. Declares, which publishers often send, keep a classic queue alive, but not a quorum
/// queue (S11.7).
pub fn goes_with_messages(arguments: &[u8], queue_type: QueueType) -> Option<&'static str> {
    let table = Table(arguments);
    let is_number = |name: &[u8]| {
        let value = table.get(name).ok().flatten();
        value.and_then(|value| value.as_integer()).is_some()
    };
    let both = is_number(EXPIRES) && is_number(MESSAGE_TTL);
    (queue_type == QueueType::Quorum && both).then_some(GOES_WITH_MESSAGES)
}
