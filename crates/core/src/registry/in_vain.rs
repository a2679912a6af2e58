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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::table::TableBuilder;

    fn of(numbers: &[&str], queue_type: QueueType) -> bool {
        let mut arguments = TableBuilder::default();
        for name in numbers {
            arguments.long(name.as_bytes(), 60_000);
        }
        goes_with_messages(&arguments.finish(), queue_type).is_some()
    }

    #[test]
    fn a_quorum_queue_in_which_messages_wait_must_not_expire() {
        let both = ["x-message-ttl", "x-expires"];
        assert!(of(&both, QueueType::Quorum));
        for queue_type in [QueueType::Classic, QueueType::Default, QueueType::Other] {
            assert!(!of(&both, queue_type), "{queue_type:?}");
        }
        for one in both {
            assert!(!of(&[one], QueueType::Quorum), "{one}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_judged() {
        let mut arguments = TableBuilder::default();
        arguments.long(b"x-expires", 60_000);
        arguments.longstr(b"x-message-ttl", b"60000");
        let arguments = arguments.finish();
        assert_eq!(goes_with_messages(&arguments, QueueType::Quorum), None);
        assert_eq!(goes_with_messages(b"broken", QueueType::Quorum), None);
    }
}
